package contract

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"
)

// Allocation is memory that Alloc has returned, and what the backend keeps with
// it.
type Allocation[B any] struct {
	Memory []byte
	Kept   B
}

func (a *Allocation[B]) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.Memory))) }

// Allocations are the live allocations of a backend, in order of address. The
// zero value has none.
type Allocations[B any] struct {
	All []Allocation[B]
}

// Alloc is Backend.Alloc of the named backend. take gets n > 0 bytes from the system; it
// is not called for a length of 0. A negative length is an error.
func (a *Allocations[B]) Alloc(backend string, n int, take func() ([]byte, B, error)) ([]byte, error) {
	if n < 0 {
		return nil, fmt.Errorf("%s: cannot allocate %d bytes", backend, n)
	}
	if n == 0 {
		return []byte{}, nil
	}
	mem, kept, err := take()
	if err != nil {
		return nil, err
	}
	added := Allocation[B]{mem, kept}
	at, _ := a.search(added.address())
	a.All = slices.Insert(a.All, at, added)
	return mem, nil
}

// Free is Backend.Free: it gives the allocation to release and forgets it. Memory that is
// not a whole live allocation is misuse; an empty slice is not.
func (a *Allocations[B]) Free(mem []byte, release func(Allocation[B])) {
	if len(mem) == 0 {
		return
	}
	at, ok := a.search(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	if !ok || len(a.All[at].Memory) != len(mem) {
		Fail("Free", "%d bytes that are not a live allocation", len(mem))
	}
	release(a.All[at])
	a.All = slices.Delete(a.All, at, at+1)
}

// Find is the allocation that holds the address, and the address's offset in it; nil if
// there is none.
func (a *Allocations[B]) Find(address uintptr) (*Allocation[B], int) {
	at, exact := a.search(address)
	if !exact {
		at--
	}
	if at < 0 {
		return nil, 0
	}
	x := &a.All[at]
	offset := int(address - x.address())
	if offset >= len(x.Memory) {
		return nil, 0
	}
	return x, offset
}

// search is where the allocation with the address is, or would be.
func (a *Allocations[B]) search(address uintptr) (int, bool) {
	return slices.BinarySearchFunc(a.All, address, func(x Allocation[B], address uintptr) int {
		return cmp.Compare(x.address(), address)
	})
}
