package verbs

import (
	"fmt"
	"unsafe"

	"ringmaster/distributed"
)

// SlabAlign is the alignment of slabs. It is the page size of Apple's hosts,
// because that is a multiple of all others in use.
const SlabAlign = 16 << 10

// boundary is the address step that no region may cross, because one provider
// keeps only the low 32 bits of an address.
const boundary = 1 << 32

// Slab is memory that may be registered. It is mapped outside the Go heap, is
// aligned, and crosses no 4 GiB boundary. Children of a fork do not get it.
type Slab struct {
	mem  []byte
	free func() error
}

// NewSlab maps n zeroed bytes, rounded up to a multiple of SlabAlign, at most
// 4 GiB.
func NewSlab(n int) (*Slab, error) {
	n, err := SlabBytes(n)
	if err != nil {
		return nil, err
	}
	for _, size := range Reservations(n) {
		whole, err := mapAnon(size)
		if err != nil {
			return nil, fmt.Errorf("mapping a slab of %d bytes: %w", n, err)
		}
		if off, ok := Place(whole, n); ok {
			return SlabOf(whole[off:off+n:off+n], func() error { return unmap(whole) }), nil
		}
		if err := unmap(whole); err != nil {
			return nil, fmt.Errorf("unmapping: %w", err)
		}
	}
	return nil, fmt.Errorf("no address range for a slab of %d bytes that does not cross a 4 GiB boundary", n)
}

// SlabBytes returns the length of a slab for n bytes; the error wraps
// distributed.ErrArgument.
func SlabBytes(n int) (int, error) {
	if n <= 0 || n > boundary {
		return 0, fmt.Errorf("%w: a slab of %d bytes; it must have 1 to %d", distributed.ErrArgument, n, int64(boundary))
	}
	return (n + SlabAlign - 1) &^ (SlabAlign - 1), nil
}

// SlabOf returns a slab of memory that already has a slab's properties; free
// frees it.
func SlabOf(mem []byte, free func() error) *Slab { return &Slab{mem: mem, free: free} }

// Reservations returns the lengths of mappings to try for a slab of n bytes. If
// the first crosses a boundary, one of twice the size has n bytes on one side of
// it. The size does not matter, because untouched pages cost nothing.
func Reservations(n int) []int { return []int{n + SlabAlign, 2*n + SlabAlign} }

// Place finds the offset of a slab of n bytes in a mapping.
func Place(whole []byte, n int) (int, bool) {
	off, ok := slabOffset(uint64(uintptr(unsafe.Pointer(&whole[0]))), uint64(len(whole)), uint64(n))
	return int(off), ok
}

// slabOffset places n bytes in a mapping so that they are aligned and cross no
// boundary.
func slabOffset(base, have, n uint64) (uint64, bool) {
	at := (base + SlabAlign - 1) &^ (SlabAlign - 1)
	if next := (at/boundary + 1) * boundary; at+n > next {
		at = next
	}
	if at+n > base+have {
		return 0, false
	}
	return at - base, true
}

// address returns where the slab begins.
func (s *Slab) address() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.mem)))) }

// Bytes returns the memory, nil after Free.
func (s *Slab) Bytes() []byte { return s.mem }

// Free unmaps the slab. Its regions must be closed before. Free may be called
// again.
func (s *Slab) Free() error {
	free := s.free
	s.mem, s.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}
