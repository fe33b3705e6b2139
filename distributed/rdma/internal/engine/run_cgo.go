//go:build cgo && (linux || darwin) && !rm_unchecked

package engine

/*
#cgo noescape rme_run
#cgo nocallback rme_run
#include "rm_engine.h"
*/
import "C"

import "time"

// run works on the task for a slice of time; 0 does what is possible at once.
func (t *Task) run(src, dst []byte, slice time.Duration) Result {
	return Result(C.rme_run((*C.struct_rme_task)(t.c), (*C.uint8_t)(pointer(src)), (*C.uint8_t)(pointer(dst)), C.int64_t(slice)))
}
