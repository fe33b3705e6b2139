//go:build cgo

package reduce

/*
#include "rm_reduce.h"
static void *rm_reduce_sum_address(void) { return (void *)rm_reduce_sum; }
*/
import "C"

import "unsafe"

// SumKernel returns the address of rm_reduce_sum (rm_reduce.h), for C code of other
// packages, and the level to call it with; nil and 0 where there is no vector
// code.
func SumKernel() (fn unsafe.Pointer, kernelLevel int) {
	if level == 0 {
		return nil, 0
	}
	return C.rm_reduce_sum_address(), level
}
