//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/elementwise.h"
import "C"

import (
	"iter"

	"ringmaster/kernels/contract"
)

var (
	elementLibrary    = newLibrary("elementwise", "float16.metal", "elementwise.h", "swiglu.metal", "elementwise.metal")
	addKernel         = newKernel(elementLibrary, "add")
	swigluKernel      = newKernel(elementLibrary, "swiglu_elements")
	clearKernel       = newKernel(elementLibrary, "clear")
	toFloat16Kernel   = newKernel(elementLibrary, "to_float16")
	fromFloat16Kernel = newKernel(elementLibrary, "from_float16")
	sumSlotsKernel    = newKernel(elementLibrary, "sum_slots")
	gatherKernel      = newKernel(elementLibrary, "gather")
	columnsKernel     = newKernel(elementLibrary, "copy_columns")
)

// most is the largest number of elements per dispatch: indices are 32 bits.
const most = 1 << 30

// stretches yields the begin and length of stretches of at most `most` elements
// that cover n.
func stretches(n int) iter.Seq2[int, int] {
	return func(yield func(from, n int) bool) {
		for from := 0; from < n; from += most {
			if !yield(from, min(most, n-from)) {
				return
			}
		}
	}
}

// elementArgs are the arguments of an elementwise kernel over n elements.
func elementArgs(n int) C.struct_rmm_elements { return C.struct_rmm_elements{n: C.uint32_t(n)} }

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	const op = "Add"
	b.live(op)
	c := contract.Add(out, x, y, n)
	for from, n := range stretches(n) {
		args := elementArgs(n)
		dispatch(b, op, addKernel, &args, elements(n),
			b.part(&c, "out", from, n), b.part(&c, "a", from, n), b.part(&c, "b", from, n))
	}
}

// SwiGLU: see kernels.Backend.
func (b *Backend) SwiGLU(out, gate, up []float32, n int, clamp float32) {
	const op = "SwiGLU"
	b.live(op)
	c := contract.SwiGLU(out, gate, up, n)
	for from, n := range stretches(n) {
		args := elementArgs(n)
		args.clamp = C.float(clamp)
		dispatch(b, op, swigluKernel, &args, elements(n),
			b.part(&c, "out", from, n), b.part(&c, "gate", from, n), b.part(&c, "up", from, n))
	}
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	const op = "Clear"
	b.live(op)
	c := contract.Clear(x, n)
	for from, n := range stretches(n) {
		args := elementArgs(n)
		dispatch(b, op, clearKernel, &args, elements(n), b.part(&c, "x", from, n))
	}
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	const op = "ToFloat16"
	b.live(op)
	c := contract.ToFloat16(out, x, n)
	for from, n := range stretches(n) {
		args := elementArgs(n)
		var to bind
		to, args.first = float16s(b.part(&c, "out", from, n))
		dispatch(b, op, toFloat16Kernel, &args, elements(n), to, b.part(&c, "x", from, n))
	}
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	const op = "FromFloat16"
	b.live(op)
	c := contract.FromFloat16(out, x, n)
	for from, n := range stretches(n) {
		args := elementArgs(n)
		var in bind
		in, args.first = float16s(b.part(&c, "x", from, n))
		dispatch(b, op, fromFloat16Kernel, &args, elements(n), b.part(&c, "out", from, n), in)
	}
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int, rounded bool) {
	const op = "SumSlots"
	b.live(op)
	c := contract.SumSlots(out, slots, rows, used, cols)
	args := C.struct_rmm_sum_slots{rows: C.uint32_t(rows), used: C.uint32_t(used), cols: C.uint32_t(cols), rounded: flag(rounded)}
	dispatch(b, op, sumSlotsKernel, &args, columns(cols, rows, false),
		b.operand(&c, "out"), b.operand(&c, "slots"))
}

// Gather: see kernels.Backend. An index out of range fails the next Flush.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	const op = "Gather"
	b.live(op)
	c := contract.Gather(out, x, rows, cols)
	args := C.struct_rmm_gather{cols: C.uint32_t(cols), have: C.uint32_t(len(x) / cols)}
	dispatch(b, op, gatherKernel, &args, columns(cols, len(rows), false),
		b.operand(&c, "out"), b.operand(&c, "x"), b.operand(&c, "rows"), b.faults())
}

// CopyColumns: see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	const op = "CopyColumns"
	b.live(op)
	c := contract.CopyColumns(out, x, rows, cols, outCols, xCols)
	args := C.struct_rmm_columns{rows: C.uint32_t(rows), cols: C.uint32_t(cols), out_cols: C.uint32_t(outCols), x_cols: C.uint32_t(xCols)}
	dispatch(b, op, columnsKernel, &args, columns(cols, rows, false), b.operand(&c, "out"), b.operand(&c, "x"))
}
