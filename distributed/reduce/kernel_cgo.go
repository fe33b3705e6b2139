//go:build cgo

package reduce

/*
#include "rm_reduce.h"
static void *rm_reduce_sum_address(void) { return (void *)rm_reduce_sum; }
*/
import "C"

import "unsafe"

// SumKernel gives C code of other packages the address of rm_reduce_sum and the
// level to call it with; nil and 0 where there is nothing faster than plain code.
func SumKernel() (fn unsafe.Pointer, kernelLevel int) {
	if level == 0 {
		return nil, 0
	}
	return C.rm_reduce_sum_address(), level
}
