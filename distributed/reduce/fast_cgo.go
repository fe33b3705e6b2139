//go:build cgo

package reduce

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra
#cgo noescape rm_reduce_sum
#cgo nocallback rm_reduce_sum
#cgo noescape rm_reduce_nonfinite
#cgo nocallback rm_reduce_nonfinite
#include "rm_reduce.h"
*/
import "C"

import (
	"unsafe"

	"ringmaster/distributed"
)

// level is the instruction set in use (RM_REDUCE_*): 0 where C has nothing faster
// than plain Go. Tests lower it.
var level = int(C.rm_reduce_level())

// minBytes is the length from which a call to C saves time.
const minBytes = 256

// fastSum adds in C and reports whether it could. It takes up to eight blocks and
// passes their addresses as arguments, because Go memory passed to C must not
// contain pointers.
func fastSum(dt distributed.DType, dst []byte, blocks [][]byte) bool {
	if level == 0 || len(blocks) > C.RM_REDUCE_BLOCKS || len(dst) < minBytes {
		return false
	}
	var kind C.int
	switch dt {
	case distributed.Float32:
		kind = C.RM_REDUCE_F32
	case distributed.Float16:
		kind = C.RM_REDUCE_F16
	case distributed.Int32:
		kind = C.RM_REDUCE_I32
	default:
		return false
	}
	var p [C.RM_REDUCE_BLOCKS]unsafe.Pointer
	for i, b := range blocks {
		p[i] = unsafe.Pointer(unsafe.SliceData(b))
	}
	C.rm_reduce_sum(C.int(level), kind, unsafe.Pointer(unsafe.SliceData(dst)), C.int64_t(len(dst)/dt.Size()),
		C.int(len(blocks)), p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
	return true
}

// fastNonFinite is NonFiniteFloat16 in C; ok is false if it could not.
func fastNonFinite(x []byte) (found, ok bool) {
	if level == 0 || len(x) < 2*minBytes {
		return false, false
	}
	return C.rm_reduce_nonfinite(C.int(level), unsafe.Pointer(unsafe.SliceData(x)), C.int64_t(len(x)/2)) != 0, true
}
