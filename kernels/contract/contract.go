// Package contract checks the arguments of ops against what package kernels
// asks of them, once for every backend. Each check panics with a
// *kernels.Misuse that names the op, the argument, its length and what is
// needed. Checks look at lengths, shapes, types and overlap, never at device
// memory: what the values are is known only when the op runs.
package contract

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// Number is an element type of device memory.
type Number interface {
	float32 | int32 | uint16
}

// Fail panics with a Misuse of op.
func Fail(op, format string, args ...any) {
	panic(&kernels.Misuse{Op: op, Msg: fmt.Sprintf(format, args...)})
}

// Len panics unless x, the argument called name, has at least as many elements
// as the product of dims. Negative dims and an overflowing product are misuse.
func Len[T Number](op, name string, x []T, dims ...int) {
	if n := product(op, name, dims); len(x) < n {
		Fail(op, "%s has %d elements, needs %d", name, len(x), n)
	}
}

func product(op, name string, dims []int) int {
	n := 1
	for _, d := range dims {
		if d < 0 {
			Fail(op, "%s has a negative length in its shape %v", name, slices.Clone(dims)) // a copy: dims stay on the stack
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > 1<<60 {
			Fail(op, "%s is too large: shape %v", name, slices.Clone(dims))
		}
		n = int(lo)
	}
	return n
}

// positive panics unless v > 0.
func positive(op, name string, v int) {
	if v <= 0 {
		Fail(op, "%s is %d, must be positive", name, v)
	}
}

// notNegative panics unless v >= 0.
func notNegative(op, name string, v int) {
	if v < 0 {
		Fail(op, "%s is %d, must not be negative", name, v)
	}
}

// overlap reports whether the first n elements of a and the first m of b share
// memory. Both slices have been checked to be that long.
func overlap[A, B Number](a []A, n int, b []B, m int) bool {
	if n == 0 || m == 0 || len(a) == 0 || len(b) == 0 {
		return false
	}
	a0 := uintptr(unsafe.Pointer(unsafe.SliceData(a)))
	b0 := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	a1 := a0 + uintptr(n)*unsafe.Sizeof(a[0])
	b1 := b0 + uintptr(m)*unsafe.Sizeof(b[0])
	return a0 < b1 && b0 < a1
}

// apart panics when n elements of out and m of in share memory.
func apart[A, B Number](op, outName string, out []A, n int, inName string, in []B, m int) {
	if overlap(out, n, in, m) {
		Fail(op, "%s overlaps %s", outName, inName)
	}
}

// sameOrApart allows out to be in exactly, and else wants them apart.
func sameOrApart(op, outName string, out []float32, inName string, in []float32, n int) {
	if n > 0 && unsafe.SliceData(out) != unsafe.SliceData(in) {
		apart(op, outName, out, n, inName, in, n)
	}
}

// Weight panics unless w is a matrix or stack of matrices of a known type with
// all its data.
func Weight(op, name string, w kernels.Weight) {
	if !w.Exists() {
		Fail(op, "%s (weight %q) does not exist", name, w.Name)
	}
	if w.Type == gguf.I32 || w.Type.BlockElements() == 0 {
		Fail(op, "%s (weight %q) is of %s, which is no type of weights", name, w.Name, w.Type)
	}
	positive(op, name+".Cols", w.Cols)
	positive(op, name+".Rows", w.Rows)
	positive(op, name+".Slices", w.Slices)
	row := w.RowBytes()
	if row == 0 {
		Fail(op, "%s (weight %q): %d columns are not a multiple of the block of %s, %d",
			name, w.Name, w.Cols, w.Type, w.Type.BlockElements())
	}
	slice := product(op, name, []int{w.Rows, row})
	need := slice
	if w.Slices > 1 {
		if w.SliceBytes < slice {
			Fail(op, "%s (weight %q): SliceBytes is %d, one matrix has %d", name, w.Name, w.SliceBytes, slice)
		}
		need += product(op, name, []int{w.Slices - 1, w.SliceBytes})
	}
	if len(w.Data) < need {
		Fail(op, "%s (weight %q) has %d bytes of data, needs %d", name, w.Name, len(w.Data), need)
	}
}

// single panics when w, which has passed Weight, is a stack.
func single(op string, w kernels.Weight) {
	if w.Slices != 1 {
		Fail(op, "weight %q is a stack of %d matrices", w.Name, w.Slices)
	}
}

// matrix is Weight for a single matrix of the given shape.
func matrix(op, name string, w kernels.Weight, rows, cols int) {
	Weight(op, name, w)
	if w.Rows != rows || w.Cols != cols {
		Fail(op, "%s (weight %q) is [%d][%d], must be [%d][%d]", name, w.Name, w.Rows, w.Cols, rows, cols)
	}
}
