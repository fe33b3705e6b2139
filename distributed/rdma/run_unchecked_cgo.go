//go:build cgo && (linux || darwin) && rm_unchecked

package rdma

/*
#cgo noescape rm_run
#cgo nocallback rm_run
#cgo noescape rm_run_unchecked
#cgo nocallback rm_run_unchecked
#include "engine.h"
int rm_run_unchecked(struct rm_job *j, const uint8_t *src, uint8_t *dst, int64_t slice);
*/
import "C"

import (
	"sync/atomic"
	"time"
)

// Unchecked makes all groups of the process run the engine without the check of
// completions. It is there only in builds with the tag rm_unchecked, which
// measure what the check costs.
var Unchecked atomic.Bool

func (j *job) run(src, dst []byte, slice time.Duration) int {
	if Unchecked.Load() {
		return int(C.rm_run_unchecked((*C.struct_rm_job)(j.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
	}
	return int(C.rm_run((*C.struct_rm_job)(j.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
}
