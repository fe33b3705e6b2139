//go:build cgo && (linux || darwin) && !rm_unchecked

package rdma

/*
#cgo noescape rm_run
#cgo nocallback rm_run
#include "engine.h"
*/
import "C"

import "time"

// run works on the job for a slice of time; 0 does what is possible at once.
func (j *job) run(src, dst []byte, slice time.Duration) int {
	return int(C.rm_run((*C.struct_rm_job)(j.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
}
