//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"errors"
	"time"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Backend runs ops on a device. Create it with New. It is used by one goroutine at a time.
type Backend struct {
	m         *C.rmg_device // nil: closed
	device    Device
	info      Info
	pipelines []pipeline // by kernel

	allocs   contract.Allocations[C.rmg_buffer] // the contents of buffers
	mappings []*mapping                         // of Map
	views    map[viewKey]pieces                 // of weights, made when first used
	list     commandList                        // encoded, not submitted yet
	work     workspace                          // for intermediates between the kernels of an op
	fault    C.rmg_buffer                       // where kernels report faults
	grids    C.rmg_buffer                       // of tables, made when first used
	mostWork time.Duration                      // of what is submitted at once
	wait     C.rmg_wait_policy                  // of Flush, but for polling
	stuck    bool                               // the device missed a deadline and may still use its buffers
	err      error                              // first failure

	ahead        ahead    // committed and not waited for
	arrival      *arrival // what the list waits for
	late         error    // of an arrival, for the next Flush
	counter      counter
	tried        map[gguf.Type]bool // types that the device computes right
	leastPolling time.Duration      // of a wait
	pace         float64            // time that work took, in units of its estimate; 0: not known yet
}

var _ kernels.Backend = (*Backend)(nil)

// New makes a backend of a device, with the pipelines of all but rare kernels. The device
// belongs to the backend from now on: Close closes it, and so does an error.
func New(d Device) (*Backend, error) {
	info := d.Info()
	b := &Backend{m: (*C.rmg_device)(d.Table()), device: d, info: info, views: map[viewKey]pieces{}, tried: map[gguf.Type]bool{}, wait: waitPolicy(deadline), leastPolling: leastPolling,
		mostWork: info.MostWork, pipelines: make([]pipeline, len(allKernels)), counter: counter{dispatches: make([]int, len(allKernels))}}
	for _, k := range allKernels {
		if !k.rare {
			if _, err := b.pipelineOf(k); err != nil {
				return nil, errors.Join(err, b.Close())
			}
		}
	}
	b.fault = C.rmg_alloc(b.m, faultBytes, 1)
	if b.fault.object == nil {
		return nil, errors.Join(b.refused("no memory on the GPU"), b.Close())
	}
	return b, nil
}

// pipeline is a compiled kernel of the device.
type pipeline struct {
	number  int // of the device
	threads int // maximum per threadgroup; 0: not made yet
}

// pipelineOf makes the pipeline of a kernel, once.
func (b *Backend) pipelineOf(k *kernel) (*pipeline, error) {
	p := &b.pipelines[k.number]
	if p.threads > 0 {
		return p, nil
	}
	number, threads, err := b.device.Pipeline(k.library, k.name)
	if err != nil {
		return nil, err
	}
	*p = pipeline{number, threads}
	return p, nil
}

// Name is that of the kind of backend and of the device.
func (b *Backend) Name() string { return b.info.Name }

// Info describes the device.
func (b *Backend) Info() Info { return b.info }

// RowsAgree reports whether a row of an op over many rows has the bits of the row alone.
func (b *Backend) RowsAgree() bool { return b.info.RowsAgree }

// WorkingSet is how many bytes the device recommends to use at most.
func (b *Backend) WorkingSet() int64 { return int64(b.info.WorkingSet) }

// CanCompute reports whether matrices of the type can be multiplied.
func (b *Backend) CanCompute(t gguf.Type) bool {
	_, ok := decoders[t]
	return ok
}

// Close waits for the device, frees all memory of Alloc and closes the device. A second
// Close does nothing.
func (b *Backend) Close() error {
	if b.m == nil {
		return nil
	}
	b.settleNow()
	b.drain(false)
	b.list.free()
	if b.stuck {
		b.m = nil // the device may still use its memory: leak it
		return b.err
	}
	b.releaseAll()
	if b.fault.object != nil {
		C.rmg_release(b.m, b.fault)
	}
	if b.grids.object != nil {
		C.rmg_release(b.m, b.grids)
	}
	b.m = nil
	if b.err == nil {
		b.err = errClosed
	}
	return b.device.Close()
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
