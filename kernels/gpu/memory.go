//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// mapping is a mapped model file, or a part of it, that holds weights.
type mapping struct {
	base       unsafe.Pointer
	begin, end uintptr
}

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

// Map registers a mapping that holds weights. Its pages are shown to the device
// matrix by matrix, when an op first uses one. An earlier mapping at the same addresses is
// gone: what the device has of it, perhaps a copy, is released.
func (b *Backend) Map(m []byte) error {
	if b.m == nil {
		return errClosed
	}
	if len(m) == 0 {
		return nil
	}
	base := unsafe.Pointer(unsafe.SliceData(m))
	b.unmap(m)
	b.mappings = append(b.mappings, mapping{base, uintptr(base), uintptr(base) + uintptr(len(m))})
	return nil
}

// unmap forgets the mappings at the addresses of m.
func (b *Backend) unmap(m []byte) {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	b.mappings = slices.DeleteFunc(b.mappings, func(old mapping) bool {
		if old.end <= begin || begin+uintptr(len(m)) <= old.begin {
			return false
		}
		b.forget(old)
		return true
	})
}

// forget releases the views of a mapping.
func (b *Backend) forget(m mapping) {
	for key, views := range b.views {
		if key.address < m.begin || key.address >= m.end {
			continue
		}
		b.settleNow()
		b.commit()
		b.drain(false)
		if b.stuck { // a device that hangs may still use them
			return
		}
		for _, v := range views {
			C.rmg_release(b.m, v.buffer)
		}
		delete(b.views, key)
	}
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

// viewKey names the bytes of weights that views cover.
type viewKey struct {
	address uintptr
	stride  int // of the pieces
	bytes   int // of a piece
	pieces  int
}

// view is a no-copy buffer over some of the pieces of a weight: rows of a matrix, or
// matrices of a stack.
type view struct {
	buffer  C.rmg_buffer
	binding C.rmg_binding // up to 15 bytes before the first piece
	shift   int           // bytes from binding to the first piece
	first   int           // index of the first piece
	count   int
	bytes   int // from the first byte to the last, for counts
}

// pieces returns views of `count` pieces of `bytes` each, `stride` apart, from
// address on: one view, or several if they exceed the device's largest buffer. A
// view covers whole pieces.
func (b *Backend) pieces(op, name string, address uintptr, stride, bytes, count int) []view {
	key := viewKey{address, stride, bytes, count}
	if v, ok := b.views[key]; ok {
		return v
	}
	inside := func(m mapping) bool {
		return address >= m.begin && address+uintptr((count-1)*stride+bytes) <= m.end
	}
	in := slices.IndexFunc(b.mappings, inside)
	if in < 0 {
		contract.Fail(op, "weight %q is not in memory registered by Map", name)
	}
	page := uintptr(b.info.Page)
	limit := int(b.info.MaxBuffer - 2*uint64(page))
	if bytes > limit {
		b.fail(fmt.Errorf("weight %q needs a buffer of %d bytes for one piece; the largest of the device has %d", name, bytes, limit))
		return nil
	}
	most := (limit-bytes)/stride + 1
	var views []view
	for first := 0; first < count; first += most {
		n := min(most, count-first)
		begin := address + uintptr(first*stride)
		end := begin + uintptr((n-1)*stride+bytes)
		from, to := begin/page*page, (end+page-1)/page*page
		m := b.mappings[in]
		buffer := C.rmg_wrap(b.m, unsafe.Add(m.base, int(from)-int(m.begin)), C.uint64_t(to-from))
		if buffer.object == nil {
			b.fail(b.refused(fmt.Sprintf("weight %q: the device refuses %d bytes of the mapped file", name, to-from)))
			for _, v := range views {
				C.rmg_release(b.m, v.buffer)
			}
			return nil
		}
		// Pieces begin anywhere, offsets of bindings are aligned.
		shift := (begin - from) % 16
		binding := C.rmg_binding{object: buffer.object, offset: C.uint64_t(begin - from - shift)}
		views = append(views, view{buffer, binding, int(shift), first, n, int(end - begin)})
	}
	b.views[key] = views
	return views
}

// rowViews returns views of the rows of a matrix, or of those of all matrices of a
// stack that lie side by side.
func (b *Backend) rowViews(op string, w kernels.Weight) []view {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(w.Data)))
	b.decodable(op, w, address)
	return b.pieces(op, w.Name, address, w.Stride(), (w.Slices-1)*w.SliceBytes+w.RowBytes(), w.Rows)
}

// sliceViews returns views of the matrices [start, end) of a stack; their indices
// count from start.
func (b *Backend) sliceViews(op string, w kernels.Weight, start, end int) []view {
	if start >= end {
		return nil
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(w.Data))) + uintptr(start*w.SliceBytes)
	b.decodable(op, w, address)
	return b.pieces(op, w.Name, address, max(w.SliceBytes, 1), w.MatrixBytes(), end-start)
}

// releaseAll releases all buffers.
func (b *Backend) releaseAll() {
	for _, x := range b.allocs.All {
		C.rmg_release(b.m, x.Kept)
	}
	for _, views := range b.views {
		for _, v := range views {
			C.rmg_release(b.m, v.buffer)
		}
	}
	b.allocs.All, b.mappings, b.views = nil, nil, nil
}
