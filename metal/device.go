//go:build (darwin && cgo) || metalsim

package metal

/*
#cgo CFLAGS: -Wall -Wextra
#cgo darwin LDFLAGS: -framework Foundation -framework Metal
#include <stdlib.h>
#include "host.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/metal/shaders"
)

// Options of Open.
type Options struct {
	// KeepWired is for how long after the last command buffer the memory of the GPU stays
	// wired, because macOS unwires idle memory and the next step then takes seconds. 0
	// means until Close.
	KeepWired time.Duration
	// Progress, if not nil, is called before the first and after each library
	// of kernels is compiled: done of the libraries are compiled.
	Progress func(done, of int)
}

// Backend is the Metal backend. Create it with Open. It is used by one
// goroutine at a time.
type Backend struct {
	m         *C.rmm_device
	info      C.rmm_info
	pipelines []pipeline // by kernel

	allocs   contract.Allocations[C.rmm_buffer] // the contents of buffers
	mappings []mapping                          // of Map
	views    map[viewKey][]view                 // of weights, made when first used
	list     commandList                        // encoded, not submitted yet
	work     workspace                          // for intermediates between the kernels of an op
	fault    C.rmm_buffer                       // where kernels report faults
	mostWork time.Duration                      // of a command buffer
	submits  int                                // number of command buffers so far
	wait     C.rmm_wait_policy                  // of Flush
	stuck    bool                               // the device missed a deadline and may still use its buffers
	err      error                              // first failure
}

var _ kernels.Backend = (*Backend)(nil)

// How Flush waits. Waking a thread that sleeps in waitUntilCompleted takes tens of
// microseconds, once per layer in a group, so that Flush polls a shared event first. A
// step of a large model on a slow host takes seconds; one that takes minutes hangs.
const (
	spin     = 200           // microseconds
	deadline = 5 * 60 * 1000 // milliseconds
)

// renewEvery is how often the request for wired memory is renewed, in milliseconds.
// macOS unwires memory that was idle for somewhat more than a second (measured on
// M2 Ultra and M4 Pro, github.com/ggml-org/llama.cpp/pull/10119). llama.cpp renewed
// every 500 ms at first (pull/17766); it went to 5 ms only to end sooner
// (pull/24074), which the thread here does at once.
const renewEvery = 500

// waitPolicy converts microseconds of polling and a deadline in milliseconds.
func waitPolicy(spin, deadline int) C.rmm_wait_policy {
	return C.rmm_wait_policy{spin_us: C.uint32_t(spin), deadline_ms: C.uint32_t(deadline)}
}

// Open opens the system's Metal device and compiles the kernels. The error is an
// *UnsuitableError where the host cannot run them.
func Open(o Options) (*Backend, error) {
	var text [8192]C.char
	b := &Backend{views: map[viewKey][]view{}, wait: waitPolicy(spin, deadline), mostWork: mostWork}
	keep := C.rmm_keep{renew_ms: renewEvery, keep_ms: C.uint64_t((max(0, o.KeepWired) + time.Millisecond - 1).Milliseconds())}
	if b.m = C.rmm_open(&b.info, keep, &text[0], C.size_t(len(text))); b.m == nil {
		if b.info.unsuitable != 0 {
			return nil, &UnsuitableError{C.GoString(&text[0])}
		}
		return nil, errors.New(C.GoString(&text[0]))
	}
	if err := b.compile(o.Progress); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.fault = C.rmm_alloc(b.m, faultBytes)
	if b.fault.object == nil {
		return nil, errors.Join(errors.New("no memory on the GPU"), b.Close())
	}
	return b, nil
}

// compile compiles the libraries and makes the pipelines of all but rare kernels.
func (b *Backend) compile(progress func(done, of int)) error {
	var text [8192]C.char
	if progress == nil {
		progress = func(int, int) {}
	}
	for i := range libraries {
		progress(i, len(libraries))
		l := &libraries[i]
		source, err := shaders.Library(l.files...)
		if err != nil {
			return fmt.Errorf("Metal library %s: %w", l.name, err)
		}
		cName, cSource := C.CString(l.name), C.CString(source)
		number := C.rmm_library(b.m, cName, cSource, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(cName))
		C.free(unsafe.Pointer(cSource))
		if number < 0 {
			return errors.New(C.GoString(&text[0]))
		}
	}
	progress(len(libraries), len(libraries))
	b.pipelines = make([]pipeline, len(allKernels))
	for _, k := range allKernels {
		if !k.rare {
			if _, err := b.pipelineOf(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// pipeline is a compiled kernel of the device.
type pipeline struct {
	number  C.int // index of rmm_pipeline
	threads int   // maximum per threadgroup; 0: not made yet
}

// pipelineOf makes the pipeline of a kernel, once.
func (b *Backend) pipelineOf(k *kernel) (*pipeline, error) {
	p := &b.pipelines[k.number]
	if p.threads > 0 {
		return p, nil
	}
	var text [8192]C.char
	var threads C.uint32_t
	name := C.CString(k.name)
	defer C.free(unsafe.Pointer(name))
	number := C.rmm_pipeline(b.m, C.int(k.library), name, &threads, &text[0], C.size_t(len(text)))
	if number < 0 {
		return nil, errors.New(C.GoString(&text[0]))
	}
	*p = pipeline{number, int(threads)}
	return p, nil
}

// Name is "metal" and the name of the device.
func (b *Backend) Name() string { return fmt.Sprintf("metal (%s)", C.GoString(&b.info.name[0])) }

// RowsAgree is false, because GEMM sums in another order than GEMV.
func (b *Backend) RowsAgree() bool { return false }

// WorkingSet is how many bytes the device recommends to use at most.
func (b *Backend) WorkingSet() int64 { return int64(b.info.working_set) }

// renewed reports whether a thread keeps the memory of the GPU wired.
func (b *Backend) renewed() bool { return C.rmm_renewed(b.m) != 0 }

// CommandBuffers is how many command buffers were submitted.
func (b *Backend) CommandBuffers() int { return b.submits }

// CanCompute reports whether matrices of the type can be multiplied.
func (b *Backend) CanCompute(t gguf.Type) bool {
	_, ok := decoders[t]
	return ok
}

// Close waits for the device and frees all memory of Alloc. A second Close does
// nothing.
func (b *Backend) Close() error {
	if b.m == nil {
		return nil
	}
	b.drain()
	b.list.free()
	if b.stuck {
		b.m = nil // the device may still use its memory: leak it
		return b.err
	}
	b.releaseAll()
	if b.fault.object != nil {
		C.rmm_release(b.m, b.fault)
	}
	C.rmm_close(b.m)
	b.m = nil
	if b.err == nil {
		b.err = errClosed
	}
	return nil
}

var errClosed = errors.New("the backend is closed")

// check panics when an op is called on a closed backend. c is the op's call, whose
// arguments have passed the checks.
func (b *Backend) check(c contract.Call) contract.Call {
	b.live(c.Op)
	return c
}

// live panics when op is called on a closed backend.
func (b *Backend) live(op string) {
	if b.m == nil {
		contract.Fail(op, "the backend is closed")
	}
}
