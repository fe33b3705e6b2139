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

// level is the set of instructions in use: 0 where C has nothing faster than
// plain Go. Tests lower it.
var level = int(C.rm_reduce_level())

// shortest is the length in bytes from which a call to C pays.
const shortest = 256

// fastSum adds in C and reports whether it could: up to eight blocks, whose
// addresses go as arguments, for Go memory given to C must not hold pointers.
func fastSum(dt distributed.DType, dst []byte, blocks [][]byte) bool {
	if level == 0 || len(blocks) > C.RM_REDUCE_BLOCKS || len(dst) < shortest {
		return false
	}
	half := C.int(0)
	if dt == distributed.Float16 {
		half = 1
	}
	var p [C.RM_REDUCE_BLOCKS]unsafe.Pointer
	for i, b := range blocks {
		p[i] = unsafe.Pointer(unsafe.SliceData(b))
	}
	C.rm_reduce_sum(C.int(level), half, unsafe.Pointer(unsafe.SliceData(dst)), C.int64_t(len(dst)/dt.Size()),
		C.int(len(blocks)), p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
	return true
}

func fastNonFinite(x []byte) (found, ok bool) {
	if level == 0 || len(x) < 2*shortest {
		return false, false
	}
	return C.rm_reduce_nonfinite(C.int(level), unsafe.Pointer(unsafe.SliceData(x)), C.int64_t(len(x)/2)) != 0, true
}
