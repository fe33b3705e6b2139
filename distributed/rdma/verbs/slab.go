package verbs

import (
	"fmt"
	"unsafe"

	"ringmaster/distributed"
)

// SlabAlign is the alignment of slabs: the page size of Apple's hosts, a multiple
// of all others in use.
const SlabAlign = 16 << 10

// boundary is the address step that no region may cross: one provider keeps only
// the low 32 bits of an address.
const boundary = 1 << 32

// Slab is memory that may be registered: mapped, never of the Go heap, aligned,
// and on one side of every 4 GiB boundary. Children of a fork do not get it.
type Slab struct {
	whole []byte // as mapped
	mem   []byte
}

// NewSlab maps n zeroed bytes, rounded up to a multiple of SlabAlign, at most
// 4 GiB.
func NewSlab(n int) (*Slab, error) {
	if n <= 0 || n > boundary {
		return nil, fmt.Errorf("%w: a slab of %d bytes; it must have 1 to %d", distributed.ErrArgument, n, int64(boundary))
	}
	n = (n + SlabAlign - 1) &^ (SlabAlign - 1)
	// If the first mapping crosses a boundary, one of twice the size holds n
	// bytes on one side of it. Pages that are not touched cost nothing.
	for _, size := range []int{n + SlabAlign, 2*n + SlabAlign} {
		whole, err := mapAnon(size)
		if err != nil {
			return nil, fmt.Errorf("mapping a slab of %d bytes: %w", n, err)
		}
		if off, ok := slabOffset(uint64(uintptr(unsafe.Pointer(&whole[0]))), uint64(len(whole)), uint64(n)); ok {
			return &Slab{whole: whole, mem: whole[off : int(off)+n : int(off)+n]}, nil
		}
		if err := unmap(whole); err != nil {
			return nil, fmt.Errorf("unmapping: %w", err)
		}
	}
	return nil, fmt.Errorf("no memory for a slab of %d bytes on one side of a 4 GiB boundary", n)
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

// address is where the slab begins.
func (s *Slab) address() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.mem)))) }

// Bytes is the memory, nil after Free.
func (s *Slab) Bytes() []byte { return s.mem }

// Free unmaps the slab. Regions of it must be closed before. It may be called
// again.
func (s *Slab) Free() error {
	whole := s.whole
	s.whole, s.mem = nil, nil
	if whole == nil {
		return nil
	}
	return unmap(whole)
}
