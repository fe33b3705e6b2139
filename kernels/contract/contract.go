// Package contract says, once for every backend, what each op of package kernels asks of
// its arguments and which memory it reads and writes.
//
// A function for every op panics with a *kernels.Misuse where the arguments break the
// contract; the panic names the op, the argument, its length and what is needed.
// Otherwise the function returns a Call, which lists the op's operands with the extents
// that the op touches:
//
//	c := contract.RMSNorm(out, x, weight, rows, cols)
//	for _, o := range c.Operands() {
//		order(o.Name, o.Access, o.Extent)
//	}
//
// A backend that computes at once needs the check alone; one that orders, delays or
// measures ops works from the Call. A backend around another one uses Each, which hands
// every op to one function.
//
// The checks cover lengths, shapes, types and overlap. They never read device memory,
// because its values are known only when the op runs. Backends that compute at once check
// the values that are used as indices with the functions of values.go.
package contract

import (
	"ringmaster/kernels"
)

// weight fails unless w, the argument called name, is a matrix or stack of
// matrices of a known type with all its data.
func (c *Call) weight(name string, w *kernels.Weight) {
	if !w.Exists() {
		c.fail("%s (weight %q) does not exist", name, w.Name)
	}
	if !w.Type.Weights() {
		c.fail("%s (weight %q) has type %s, which is not a type of weights", name, w.Name, w.Type)
	}
	if w.Cols <= 0 || w.Rows <= 0 || w.Slices <= 0 {
		c.fail("%s (weight %q): %d matrices [%d][%d], all must be positive", name, w.Name, w.Slices, w.Rows, w.Cols)
	}
	row := w.RowBytes()
	if row == 0 {
		c.fail("%s (weight %q): %d columns are not a multiple of the block of %s, %d",
			name, w.Name, w.Cols, w.Type, w.Type.BlockElements())
	}
	stride := w.Stride()
	if stride < row {
		c.fail("%s (weight %q): RowStride is %d, a row has %d bytes", name, w.Name, w.RowStride, row)
	}
	need := c.product(name, []int{w.Rows - 1, stride}) + row
	if w.Slices > 1 {
		beside := c.product(name, []int{w.Slices - 1, w.SliceBytes})
		if w.SliceBytes < need && (w.SliceBytes < row || beside+row > stride) {
			c.fail("%s (weight %q): SliceBytes is %d; a matrix has %d, its rows are %d apart", name, w.Name, w.SliceBytes, need, stride)
		}
		need += beside
	}
	if len(w.Data) < need {
		c.fail("%s (weight %q) has %d bytes of data, needs %d", name, w.Name, len(w.Data), need)
	}
}

// scales fails unless w has at most so many factors for its products.
func (c *Call) scales(name string, w *kernels.Weight, most int) {
	if n := len(w.Scales); n > 1 && n != most || n > most {
		c.fail("%s (weight %q) has %d scales, can have %d", name, w.Name, n, most)
	}
}

// single is weight for one matrix.
func (c *Call) single(name string, w *kernels.Weight) {
	c.weight(name, w)
	c.scales(name, w, 1)
	if w.Slices != 1 {
		c.fail("%s (weight %q) is a stack of %d matrices", name, w.Name, w.Slices)
	}
}

// matrix is weight for a matrix of the given shape.
func (c *Call) matrix(name string, w *kernels.Weight, rows, cols int) {
	c.weight(name, w)
	c.scales(name, w, 0)
	if w.Rows != rows || w.Cols != cols {
		c.fail("%s (weight %q) is [%d][%d], must be [%d][%d]", name, w.Name, w.Rows, w.Cols, rows, cols)
	}
}

// stack is weight for a stack of a matrix for each of n experts.
func (c *Call) stack(name string, w *kernels.Weight, n int) {
	c.weight(name, w)
	c.scales(name, w, n)
	if w.Slices != n {
		c.fail("%s (weight %q) has %d matrices for %d experts", name, w.Name, w.Slices, n)
	}
}
