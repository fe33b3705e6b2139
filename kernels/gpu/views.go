//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Weights are read from the mapped file, through buffers of its pages. Hold makes few large ones
// of the pages that a rank's ops read: devices keep lists of buffers, and buffers that share
// pages may be wired twice. A weight outside of these gets buffers of its own when an op first
// reads it. No buffer has a page without bytes of a weight that was named: a Mac would wire it,
// and a card would copy it.

// mapping is a mapped model file, or a part of it, that holds weights.
type mapping struct {
	base       unsafe.Pointer
	begin, end uintptr
	spans      []span         // of the pages that Hold has made buffers of, from merged
	held       []C.rmg_buffer // those buffers [spans]
}

// span is the range of n bytes of the mapping from an address on.
func (m *mapping) span(address uintptr, n int) span {
	from := uint64(address - m.begin)
	return span{from, from + uint64(n)}
}

// viewKey names the bytes of weights that views cover.
type viewKey struct {
	address uintptr
	stride  int // of the pieces
	bytes   int // of a piece
	pieces  int
}

// view is what a dispatch can reach of a weight through one buffer: all or some of its pieces,
// which are rows of a matrix or matrices of a stack.
type view struct {
	binding C.rmg_binding // up to 15 bytes before the first piece
	shift   int           // bytes from binding to the first piece
	first   int           // index of the first piece
	count   int
	bytes   int // from the first byte to the last, for counts
}

// pieces are the views of a weight.
type pieces struct {
	views []view
	own   []C.rmg_buffer // made for these views alone; none if they are in one of Hold's
}

func (p pieces) release(b *Backend) {
	for _, x := range p.own {
		C.rmg_release(b.m, x)
	}
}

// Map registers a mapping that holds weights. The device gets its pages by Hold, or weight by
// weight when an op first reads one. An earlier mapping at the same addresses is
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
	b.mappings = append(b.mappings, &mapping{base: base, begin: uintptr(base), end: uintptr(base) + uintptr(len(m))})
	return nil
}

// unmap forgets the mappings at the addresses of m.
func (b *Backend) unmap(m []byte) {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	b.mappings = slices.DeleteFunc(b.mappings, func(old *mapping) bool {
		if old.end <= begin || begin+uintptr(len(m)) <= old.begin {
			return false
		}
		b.forget(old, nil)
		return true
	})
}

// Hold makes buffers of the pages of the weights that ops read from now on, see kernels.Hold.
// It keeps those that it has already made of just these pages, and releases all others,
// also those that were made when an op first read a weight.
func (b *Backend) Hold(used func() ([]kernels.Span, error)) error {
	if b.m == nil {
		return errClosed
	}
	list, err := used()
	if err != nil {
		return err
	}
	of := make(map[*mapping][]span, len(b.mappings))
	for _, s := range list {
		if len(s.Data) == 0 {
			continue
		}
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))
		m := b.mappingOf(begin, begin+uintptr(len(s.Data)))
		if m == nil {
			return fmt.Errorf("%d bytes of weights are not in memory registered by Map", len(s.Data))
		}
		of[m] = append(of[m], m.span(begin, len(s.Data)))
	}
	// First all releases, because what is made needs their memory.
	spans := make([][]span, len(b.mappings))
	for i, m := range b.mappings {
		spans[i] = merged(of[m], b.info.Page, b.largest())
		b.forget(m, spans[i])
	}
	if b.stuck {
		return b.err
	}
	for i, m := range b.mappings {
		for _, s := range spans[i] {
			at, found := slices.BinarySearchFunc(m.spans, s, span.compare)
			if found {
				continue
			}
			x := b.wrap(m, s)
			if x.object == nil {
				return b.refused(fmt.Sprintf("the device refuses %d bytes of the mapped file", s.to-s.from))
			}
			m.spans, m.held = slices.Insert(m.spans, at, s), slices.Insert(m.held, at, x)
		}
	}
	return nil
}

// forget releases the buffers of a mapping, except for those that Hold has made of the spans in
// keep, and forgets all views, which are found again without the device.
func (b *Backend) forget(m *mapping, keep []span) {
	goes := func(s span) bool { _, stays := slices.BinarySearchFunc(keep, s, span.compare); return !stays }
	var keys []viewKey
	var release []C.rmg_buffer
	for key, p := range b.views {
		if key.address >= m.begin && key.address < m.end {
			keys, release = append(keys, key), append(release, p.own...)
		}
	}
	var spans []span
	var stay []C.rmg_buffer
	for i, s := range m.spans {
		if goes(s) {
			release = append(release, m.held[i])
		} else {
			spans, stay = append(spans, s), append(stay, m.held[i])
		}
	}
	if len(release) > 0 {
		b.settleNow()
		b.commit()
		b.drain(false)
		if b.stuck { // a device that hangs may still use them
			return
		}
	}
	for _, x := range release {
		C.rmg_release(b.m, x)
	}
	for _, key := range keys {
		delete(b.views, key)
	}
	m.spans, m.held = spans, stay
}

// mappingOf is the mapping that has all bytes from begin to end; nil if none has.
func (b *Backend) mappingOf(begin, end uintptr) *mapping {
	for _, m := range b.mappings {
		if m.begin <= begin && end <= m.end {
			return m
		}
	}
	return nil
}

// largest is how many bytes the pages of a buffer of weights may have.
func (b *Backend) largest() uint64 { return b.info.MaxBuffer - b.info.Page }

// wrap makes a buffer of whole pages of a mapping; its object is nil if the device refuses.
func (b *Backend) wrap(m *mapping, s span) C.rmg_buffer {
	return C.rmg_wrap(b.m, unsafe.Add(m.base, int(s.from)), C.uint64_t(s.to-s.from))
}

// viewOf is the view of some pieces, which are the bytes s of a mapping, in a buffer of its pages
// from an offset on. Pieces begin anywhere, offsets of bindings are aligned.
func viewOf(buffer C.rmg_buffer, from uint64, s span, first, count int) view {
	shift := (s.from - from) % 16
	return view{C.rmg_binding{object: buffer.object, offset: C.uint64_t(s.from - from - shift)}, int(shift), first, count, int(s.to - s.from)}
}

// pieces returns views of `count` pieces of `bytes` each, `stride` apart, from address on: one
// view, or several if they exceed the device's largest buffer. A view covers whole pieces.
func (b *Backend) pieces(op, name string, address uintptr, stride, bytes, count int) []view {
	key := viewKey{address, stride, bytes, count}
	if p, ok := b.views[key]; ok {
		return p.views
	}
	all := (count-1)*stride + bytes
	m := b.mappingOf(address, address+uintptr(all))
	if m == nil {
		contract.Fail(op, "weight %q is not in memory registered by Map", name)
	}
	var p pieces
	if s := m.span(address, all); cover(m.spans, s) >= 0 {
		i := cover(m.spans, s)
		p.views = []view{viewOf(m.held[i], m.spans[i].from, s, 0, count)}
	} else if p = b.ownPieces(name, m, key); p.views == nil {
		return nil
	}
	b.views[key] = p
	return p.views
}

// ownPieces makes buffers for a weight alone. Without views the error is recorded.
func (b *Backend) ownPieces(name string, m *mapping, key viewKey) (p pieces) {
	limit := int(b.info.MaxBuffer - 2*b.info.Page)
	if key.bytes > limit {
		b.fail(fmt.Errorf("weight %q needs a buffer of %d bytes for one piece; the largest of the device has %d", name, key.bytes, limit))
		return p
	}
	most := (limit-key.bytes)/key.stride + 1
	for first := 0; first < key.pieces; first += most {
		n := min(most, key.pieces-first)
		s := m.span(key.address+uintptr(first*key.stride), (n-1)*key.stride+key.bytes)
		pages := s.pages(b.info.Page)
		x := b.wrap(m, pages)
		if x.object == nil {
			b.fail(b.refused(fmt.Sprintf("weight %q: the device refuses %d bytes of the mapped file", name, pages.to-pages.from)))
			p.release(b)
			return pieces{}
		}
		p.own = append(p.own, x)
		p.views = append(p.views, viewOf(x, pages.from, s, first, n))
	}
	return p
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

// WeightBuffers counts the buffers of weights: those that Hold has made, and those that were
// made when an op first read a weight.
func (b *Backend) WeightBuffers() (held, own int) {
	for _, m := range b.mappings {
		held += len(m.held)
	}
	for _, p := range b.views {
		own += len(p.own)
	}
	return held, own
}
