//go:build cgo && (linux || darwin) && rm_unchecked

package engine

/*
#cgo noescape rme_run
#cgo nocallback rme_run
#cgo noescape rme_run_unchecked
#cgo nocallback rme_run_unchecked
#include "rm_engine.h"
int rme_run_unchecked(struct rme_task *t, const uint8_t *src, uint8_t *dst, int64_t slice);
*/
import "C"

import (
	"sync/atomic"
	"time"
)

// Unchecked makes all groups of the process run the engine without the check of
// completions. It exists only in builds with the tag rm_unchecked, which
// measure the cost of the check.
var Unchecked atomic.Bool

func (t *Task) run(src, dst []byte, slice time.Duration) Result {
	if Unchecked.Load() {
		return Result(C.rme_run_unchecked((*C.struct_rme_task)(t.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
	}
	return Result(C.rme_run((*C.struct_rme_task)(t.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
}
