//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"unsafe"

	"ringmaster/kernels/contract"
)

// access is what a dispatch does with a buffer: what the op does with the operand, unless
// the op's dispatches divide that among them.
type access = contract.Access

const (
	reads           = contract.Reads
	writes          = contract.Writes
	updates         = contract.Updates
	constant access = -1 // reads what no op writes: weights
)

// bind is a buffer of a dispatch.
type bind struct {
	binding C.rmg_binding
	bytes   int
	access  access
	weights int // bytes that a view of weights covers
}

// operand binds the extent of the op's operand with the given name.
func (b *Backend) operand(c *contract.Call, name string) bind {
	o := c.Operand(name)
	return b.part(c, name, 0, o.Extent.End-o.Extent.Begin)
}

// part binds n elements of the op's operand with the given name, `from` behind the
// beginning of its extent. For n = 0 it binds some other buffer, because no elements have
// no memory; the kernel must not touch it.
func (b *Backend) part(c *contract.Call, name string, from, n int) bind {
	if n == 0 {
		return bind{C.rmg_binding{object: b.fault.object}, 0, constant, 0}
	}
	o := c.Operand(name)
	address := uintptr(o.Base) + uintptr((o.Extent.Begin+from)*o.Size)
	found, ok := b.find(c.Op, address, n*o.Size)
	if !ok {
		contract.Fail(c.Op, "%s is not in memory from Alloc", name)
	}
	return bind{found, n * o.Size, o.Access, 0}
}

// between binds the first n elements of x, which is from scratch or counting.
func between[T float32 | int32](b *Backend, op string, x []T, n int, a access) bind {
	if n == 0 {
		return bind{C.rmg_binding{object: b.fault.object}, 0, constant, 0}
	}
	bytes := n * int(unsafe.Sizeof(x[0]))
	found, ok := b.find(op, uintptr(unsafe.Pointer(unsafe.SliceData(x))), bytes)
	if !ok {
		contract.Fail(op, "a slice of %d elements is not in memory from Alloc", len(x))
	}
	return bind{found, bytes, a, 0}
}

// rows binds n rows from `from` on, of a bind of `all` rows of the same length.
func (x bind) rows(from, n, all int) bind {
	row := x.bytes / all
	x.binding.offset += C.uint64_t(from * row)
	x.bytes = n * row
	return x
}

// bound binds the pieces of a view.
func (v *view) bound() bind { return bind{v.binding, 0, constant, v.bytes} }

// faults is the buffer where kernels report misuse.
func (b *Backend) faults() bind { return bind{C.rmg_binding{object: b.fault.object}, 0, constant, 0} }

// float16s binds `found`, elements of 16 bits, from a multiple of 4 bytes on, because
// bindings must begin at one. It returns the number of the element at which they begin.
func float16s(found bind) (bind, C.uint32_t) {
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
