//go:build cgo

package gpu

// #include "args/elementwise.h"
import "C"

import (
	"ringmaster/kernels/contract"
)

var (
	elementLibrary    = "elementwise"
	addKernel         = newKernel(elementLibrary, "add")
	swigluKernel      = newKernel(elementLibrary, "swiglu_elements")
	clearKernel       = newKernel(elementLibrary, "clear")
	toFloat16Kernel   = newKernel(elementLibrary, "to_float16")
	fromFloat16Kernel = newKernel(elementLibrary, "from_float16")
	sumSlotsKernel    = newKernel(elementLibrary, "sum_slots")
	sumExactKernel    = newKernel(elementLibrary, "sum_exact")
	roundSumsKernel   = newKernel(elementLibrary, "round_sums")
	gatherKernel      = newKernel(elementLibrary, "gather")
	columnsKernel     = newKernel(elementLibrary, "copy_columns")
)

// most is the largest number of elements per dispatch: indices are 32 bits.
const most = 1 << 30

// elementwise encodes a kernel over n elements of the operands with the given names, in
// stretches of at most `most`, and of what the device takes at once.
func (b *Backend) elementwise(c *contract.Call, k *kernel, n int, clamp float32, operands ...string) {
	stretch := most
	if b.info.GroupsMax > 0 {
		stretch = min(most, elementThreads*b.info.GroupsMax)
	}
	for from := 0; from < n; from += stretch {
		n := min(stretch, n-from)
		args := C.struct_rmg_elements{n: C.uint32_t(n), clamp: C.float(clamp)}
		var buffers []bind
		for _, name := range operands {
			x := b.part(c, name, from, n)
			if c.Operand(name).Size == 2 {
				x, args.first = float16s(x)
			}
			buffers = append(buffers, x)
		}
		dispatch(b, c.Op, k, &args, elements(n), buffers...)
	}
}

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	c := b.check(contract.Add(out, x, y, n))
	b.elementwise(&c, addKernel, n, 0, "out", "a", "b")
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	c := b.check(contract.Clear(x, n))
	b.elementwise(&c, clearKernel, n, 0, "x")
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	c := b.check(contract.ToFloat16(out, x, n))
	b.elementwise(&c, toFloat16Kernel, n, 0, "out", "x")
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	c := b.check(contract.FromFloat16(out, x, n))
	b.elementwise(&c, fromFloat16Kernel, n, 0, "out", "x")
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int) {
	c := b.check(contract.SumSlots(out, slots, rows, used, cols))
	b.sumSlots(c.Op, b.operand(&c, "out"), b.operand(&c, "slots"), nil, rows, used, cols)
}

// sumSlots encodes the sums of slots, each with a row of plus if there is one.
func (b *Backend) sumSlots(op string, out, slots bind, plus *bind, rows, used, cols int) {
	args := C.struct_rmg_sum_slots{rows: C.uint32_t(rows), used: C.uint32_t(used), cols: C.uint32_t(cols)}
	further := b.faults()
	if plus != nil {
		args.plus, further = 1, *plus
	}
	dispatch(b, op, sumSlotsKernel, &args, columns(cols, rows, false), out, slots, further)
}

// SumExact: see kernels.Backend.
func (b *Backend) SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) {
	c := b.check(contract.SumExact(sums, terms, rows, count, cols, add))
	args := C.struct_rmg_sum_exact{rows: C.uint32_t(rows), count: C.uint32_t(count), cols: C.uint32_t(cols), add: flag(add)}
	dispatch(b, c.Op, sumExactKernel, &args, columns(cols, rows, false),
		b.operand(&c, "sums"), b.operand(&c, "terms"))
}

// RoundSums: see kernels.Backend.
func (b *Backend) RoundSums(out []float32, sums []int64, n int) {
	c := b.check(contract.RoundSums(out, sums, n))
	b.elementwise(&c, roundSumsKernel, n, 0, "out", "sums")
}

// Gather: see kernels.Backend. An index out of range fails the next Flush.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	c := b.check(contract.Gather(out, x, rows, cols))
	args := C.struct_rmg_gather{cols: C.uint32_t(cols), have: C.uint32_t(len(x) / cols)}
	dispatch(b, c.Op, gatherKernel, &args, columns(cols, len(rows), false),
		b.operand(&c, "out"), b.operand(&c, "x"), b.operand(&c, "rows"), b.faults())
}

// CopyColumns: see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	c := b.check(contract.CopyColumns(out, x, rows, cols, outCols, xCols))
	args := C.struct_rmg_columns{rows: C.uint32_t(rows), cols: C.uint32_t(cols), out_cols: C.uint32_t(outCols), x_cols: C.uint32_t(xCols)}
	dispatch(b, c.Op, columnsKernel, &args, columns(cols, rows, false), b.operand(&c, "out"), b.operand(&c, "x"))
}
