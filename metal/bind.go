//go:build (darwin && cgo) || metalsim

package metal

// #include "host.h"
import "C"

import (
	"unsafe"

	"ringmaster/kernels/contract"
)

// access is what a dispatch does with a buffer.
type access int

const (
	reads access = iota
	writes
	updates  // reads and writes
	constant // reads what no op writes: weights
)

// bind is a buffer of a dispatch.
type bind struct {
	binding C.rm_metal_binding
	bytes   int
	access  access
}

// slice binds the first n elements of x, which lies in memory from Alloc. A nil
// slice has no memory: any buffer stands in that the kernel then must not touch.
func slice[T contract.Number](b *Backend, op string, x []T, n int, a access) bind {
	if len(x) == 0 || n == 0 {
		return bind{C.rm_metal_binding{object: b.fault.object}, 0, constant}
	}
	bytes := n * int(unsafe.Sizeof(x[0]))
	found, ok := b.find(op, uintptr(unsafe.Pointer(unsafe.SliceData(x))), bytes)
	if !ok {
		contract.Fail(op, "a slice of %d elements is not in memory from Alloc", len(x))
	}
	return bind{found, bytes, a}
}

// bound binds the pieces of a view.
func (v *view) bound() bind { return bind{v.binding, 0, constant} }

// faults is the buffer where kernels report misuse.
func (b *Backend) faults() bind { return bind{C.rm_metal_binding{object: b.fault.object}, 0, constant} }

// halves binds the first n elements of x from a multiple of 4 bytes on, as
// bindings must begin; x begins at the element that is returned.
func halves(b *Backend, op string, x []uint16, n int, a access) (bind, C.uint32_t) {
	found := slice(b, op, x, n, a)
	skip := found.binding.offset % 4
	found.binding.offset -= skip
	found.bytes += int(skip)
	return found, C.uint32_t(skip / 2)
}

// aligned reports whether all of the buffers begin at a multiple of n bytes.
func aligned(n uint64, buffers ...bind) bool {
	for _, x := range buffers {
		if uint64(x.binding.offset)%n != 0 {
			return false
		}
	}
	return true
}

// flag is 1 for true.
func flag(v bool) C.int32_t {
	if v {
		return 1
	}
	return 0
}
