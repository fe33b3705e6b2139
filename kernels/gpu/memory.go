//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Alloc returns n bytes of zeroed memory that host and device see: the contents of a buffer.
func (b *Backend) Alloc(n int) ([]byte, error) { return b.alloc(n, 0) }

// AllocHost is Alloc with memory that the host reads fast.
func (b *Backend) AllocHost(n int) ([]byte, error) { return b.alloc(n, 1) }

// Host says whether the device has memory of its own.
func (b *Backend) Host() kernels.Host { return kernels.Host{SlowReads: b.info.SlowReads} }

func (b *Backend) alloc(n int, host C.int) ([]byte, error) {
	if b.m == nil {
		return nil, errClosed
	}
	return b.allocs.Alloc(b.info.Name, n, func() (mem []byte, buffer C.rmg_buffer, err error) {
		if uint64(n) > b.info.MaxBuffer {
			return nil, buffer, fmt.Errorf("the GPU cannot allocate %d bytes; the largest buffer of the device has %d", n, b.info.MaxBuffer)
		}
		buffer = C.rmg_alloc(b.m, C.uint64_t(n), host)
		if buffer.object == nil {
			return nil, buffer, b.refused(fmt.Sprintf("the GPU cannot allocate %d bytes", n))
		}
		if uintptr(buffer.contents)%64 != 0 {
			C.rmg_release(b.m, buffer)
			return nil, buffer, fmt.Errorf("a buffer of %d bytes is not aligned to 64", n)
		}
		return unsafe.Slice((*byte)(buffer.contents), n), buffer, nil
	})
}

// refused is the error of an alloc or wrap that has just failed, with the device's reason if it
// gives one.
func (b *Backend) refused(what string) error {
	if why := C.GoString(C.rmg_why(b.m)); why != "" {
		return fmt.Errorf("%s: %s", what, why)
	}
	return errors.New(what)
}

// Free releases memory of Alloc or AllocHost. mem must be the whole slice, and no op that is encoded
// or running may use it.
func (b *Backend) Free(mem []byte) {
	b.allocs.Free(mem, func(x contract.Allocation[C.rmg_buffer]) {
		// Command buffers do not retain the buffers that they use.
		b.settleNow()
		b.drain(false)
		if !b.stuck { // a device that hangs may still use it
			C.rmg_release(b.m, x.Kept)
		}
	})
}

// find returns the buffer and offset of n bytes from address on, and whether the
// address is in memory of Alloc.
func (b *Backend) find(op string, address uintptr, n int) (C.rmg_binding, bool) {
	x, offset := b.allocs.Find(address)
	if x == nil {
		return C.rmg_binding{}, false
	}
	if offset+n > len(x.Memory) {
		contract.Fail(op, "memory reaches beyond its allocation of %d bytes", len(x.Memory))
	}
	return C.rmg_binding{object: x.Kept.object, offset: C.uint64_t(offset)}, true
}

// releaseAll releases all buffers.
func (b *Backend) releaseAll() {
	for _, x := range b.allocs.All {
		C.rmg_release(b.m, x.Kept)
	}
	for _, m := range b.mappings {
		for _, x := range m.held {
			C.rmg_release(b.m, x)
		}
	}
	for _, p := range b.views {
		p.release(b)
	}
	b.allocs.All, b.mappings, b.views = nil, nil, nil
}
