//go:build (darwin && cgo) || metalsim

package metal

// #include "host.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// block is an allocation: its memory is the contents of the buffer.
type block struct {
	address uintptr
	length  int
	buffer  C.rmm_buffer
}

// mapping is memory of a model file that ops may read weights from.
type mapping struct {
	base       unsafe.Pointer
	begin, end uintptr
}

// Alloc returns n bytes of zeroed memory in shared storage.
func (b *Backend) Alloc(n int) ([]byte, error) {
	if b.m == nil {
		return nil, errClosed
	}
	if n < 0 || uint64(n) > uint64(b.info.max_buffer) {
		return nil, fmt.Errorf("metal: cannot allocate %d bytes; the largest buffer of the device has %d", n, uint64(b.info.max_buffer))
	}
	if n == 0 {
		return []byte{}, nil
	}
	buffer := C.rmm_alloc(b.m, C.uint64_t(n))
	if buffer.object == nil {
		return nil, fmt.Errorf("metal: the device has no %d bytes of memory to give", n)
	}
	address := uintptr(buffer.contents)
	if address%64 != 0 {
		C.rmm_release(b.m, buffer)
		return nil, fmt.Errorf("metal: a buffer of %d bytes is not aligned to 64", n)
	}
	at, _ := b.search(address)
	b.blocks = slices.Insert(b.blocks, at, block{address, n, buffer})
	return unsafe.Slice((*byte)(buffer.contents), n), nil
}

// search is where the block with the address is, or would be.
func (b *Backend) search(address uintptr) (int, bool) {
	return slices.BinarySearchFunc(b.blocks, address, func(x block, a uintptr) int {
		switch {
		case x.address < a:
			return -1
		case x.address > a:
			return 1
		}
		return 0
	})
}

// Free gives back what Alloc returned; mem must be that whole slice, and no op
// that uses it may be encoded or running.
func (b *Backend) Free(mem []byte) {
	if len(mem) == 0 {
		return
	}
	at, ok := b.search(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	if !ok || b.blocks[at].length != len(mem) {
		contract.Fail("Free", "%d bytes that are not a live allocation", len(mem))
	}
	// A command buffer does not retain what it uses.
	b.drain()
	if !b.stuck { // then it goes with the process
		C.rmm_release(b.m, b.blocks[at].buffer)
	}
	b.blocks = slices.Delete(b.blocks, at, at+1)
}

// Map makes the weights of a mapping usable. Its pages are given to the device
// matrix by matrix, when ops first use them.
func (b *Backend) Map(m []byte) error {
	if b.m == nil {
		return errClosed
	}
	if len(m) > 0 {
		base := unsafe.Pointer(unsafe.SliceData(m))
		b.mappings = append(b.mappings, mapping{base, uintptr(base), uintptr(base) + uintptr(len(m))})
	}
	return nil
}

// find is the buffer that holds n bytes from address on, and how far into it.
func (b *Backend) find(op string, address uintptr, n int) (C.rmm_binding, bool) {
	at, exact := b.search(address)
	if !exact {
		at--
	}
	if at < 0 || address >= b.blocks[at].address+uintptr(b.blocks[at].length) {
		return C.rmm_binding{}, false
	}
	x := &b.blocks[at]
	offset := address - x.address
	if int(offset)+n > x.length {
		contract.Fail(op, "memory reaches beyond its allocation of %d bytes", x.length)
	}
	return C.rmm_binding{object: x.buffer.object, offset: C.uint64_t(offset)}, true
}

// viewKey names the bytes of weights that views cover.
type viewKey struct {
	address uintptr
	stride  int // of the pieces
	pieces  int
}

// view is a buffer without copy over some of the pieces (rows of a matrix, or
// matrices of a stack) of a weight.
type view struct {
	buffer  C.rmm_buffer
	binding C.rmm_binding // up to 15 bytes before its first piece
	shift   int           // these bytes
	first   int           // number of the first piece
	count   int
}

// pieces gives views of `count` pieces of `bytes` each, `stride` apart, from
// address on: one view, or more if the device's largest buffer is too small. A
// view may cover more than one piece, never a part of one.
func (b *Backend) pieces(op, name string, address uintptr, stride, bytes, count int) []view {
	key := viewKey{address, stride, count}
	if v, ok := b.views[key]; ok {
		return v
	}
	inside := func(m mapping) bool {
		return address >= m.begin && address+uintptr((count-1)*stride+bytes) <= m.end
	}
	home := slices.IndexFunc(b.mappings, inside)
	if home < 0 {
		contract.Fail(op, "weight %q is not in a mapping that Map was given", name)
	}
	page := uintptr(b.info.page)
	room := int(uint64(b.info.max_buffer) - 2*uint64(page))
	if bytes > room {
		b.fail(fmt.Errorf("metal: weight %q needs a buffer of %d bytes for one piece; the largest of the device has %d", name, bytes, room))
		return nil
	}
	most := (room-bytes)/stride + 1
	var views []view
	for first := 0; first < count; first += most {
		n := min(most, count-first)
		begin := address + uintptr(first*stride)
		end := begin + uintptr((n-1)*stride+bytes)
		from, to := begin/page*page, (end+page-1)/page*page
		m := b.mappings[home]
		buffer := C.rmm_wrap(b.m, unsafe.Add(m.base, int(from)-int(m.begin)), C.uint64_t(to-from))
		if buffer.object == nil {
			b.fail(fmt.Errorf("metal: weight %q: the device does not take %d bytes of the mapped file", name, to-from))
			for _, v := range views {
				C.rmm_release(b.m, v.buffer)
			}
			return nil
		}
		// Pieces may begin anywhere; offsets of bindings are aligned.
		shift := (begin - from) % 16
		binding := C.rmm_binding{object: buffer.object, offset: C.uint64_t(begin - from - shift)}
		views = append(views, view{buffer, binding, int(shift), first, n})
	}
	b.views[key] = views
	return views
}

// rowViews gives views of the rows of a matrix.
func (b *Backend) rowViews(op string, w kernels.Weight) []view {
	row := w.RowBytes()
	address := uintptr(unsafe.Pointer(unsafe.SliceData(w.Data)))
	decodable(op, w, address)
	return b.pieces(op, w.Name, address, row, row, w.Rows)
}

// sliceViews gives views of the matrices [start, end) of a stack; their numbers
// count from start.
func (b *Backend) sliceViews(op string, w kernels.Weight, start, end int) []view {
	if start >= end {
		return nil
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(w.Data))) + uintptr(start*w.SliceBytes)
	decodable(op, w, address)
	return b.pieces(op, w.Name, address, max(w.SliceBytes, 1), w.Rows*w.RowBytes(), end-start)
}

// releaseAll gives back all buffers.
func (b *Backend) releaseAll() {
	for _, x := range b.blocks {
		C.rmm_release(b.m, x.buffer)
	}
	for _, views := range b.views {
		for _, v := range views {
			C.rmm_release(b.m, v.buffer)
		}
	}
	b.blocks, b.mappings, b.views = nil, nil, nil
}
