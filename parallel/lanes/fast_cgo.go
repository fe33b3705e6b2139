//go:build cgo

package lanes

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra
#cgo noescape rm_lanes_measure
#cgo nocallback rm_lanes_measure
#cgo noescape rm_lanes_encode
#cgo nocallback rm_lanes_encode
#cgo noescape rm_lanes_add
#cgo nocallback rm_lanes_add
#include "rm_lanes.h"
*/
import "C"

import "unsafe"

// level is the instruction set in use, 0 for that of every processor. Tests lower it.
var level = C.rm_lanes_level()

// fewest is the number of sums from which a call to C saves time.
const fewest = 64

// The fast functions report whether they could do it.

func fastMeasure(limits []Limits, sums []int64, width int) bool {
	if len(sums) < fewest {
		return false
	}
	limits = limits[:Blocks(len(sums)/width, width)]
	C.rm_lanes_measure(level, bytesOf(limits), int64s(sums), C.int64_t(len(sums)/width), C.int64_t(width))
	return true
}

func fastEncode(dst []int32, layouts []Layout, sums []int64, width int) bool {
	if len(sums) < fewest {
		return false
	}
	C.rm_lanes_encode(level, int32s(dst), bytesOf(layouts), int64s(sums), C.int64_t(len(sums)/width), C.int64_t(width))
	return true
}

func fastAdd(sums []int64, layouts []Layout, src []int32, width int, replace, careful bool) bool {
	if len(sums) < fewest {
		return false
	}
	C.rm_lanes_add(level, int64s(sums), bytesOf(layouts), int32s(src), C.int64_t(len(sums)/width), C.int64_t(width), flag(replace),
		flag(careful))
	return true
}

func flag(x bool) C.int {
	if x {
		return 1
	}
	return 0
}

func bytesOf[T Layout | Limits](x []T) *C.uint8_t {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(x)))
}

func int64s(x []int64) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(x))) }
func int32s(x []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(x))) }
