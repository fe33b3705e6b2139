package kernels

import (
	"fmt"

	"ringmaster/gguf"
)

// Weight is a constant matrix, or a stack of them, in the type it has in the
// model file. It may be part of a larger one: some of its rows, or some of its
// columns.
type Weight struct {
	Name   string // tensor name, for messages
	Type   gguf.Type
	Cols   int // K: inputs, the length of a row; a multiple of the type's block
	Rows   int // N: outputs
	Slices int // number of matrices (experts, groups); 1 for a plain matrix
	// RowStride is the distance in bytes from one row to the next where that is
	// not RowBytes: the matrix is some columns of a wider one. Else it is 0.
	RowStride int
	// SliceBytes is the distance in bytes from one matrix to the next. Matrices
	// lie one after the other, perhaps with a gap (two stacks are interleaved in
	// ffn_gate_up_exps), or side by side within the rows of a wider matrix.
	SliceBytes int
	// Data holds the matrices; it reaches at least to the end of the last row of
	// the last one. It is empty for a Weight that does not exist.
	Data []byte
	// Scales are factors of the products, in a mapping as Data: one for each matrix, or one
	// for all. Without any, which costs nothing, a factor is 1. Only MatMul and MatMulGrouped
	// (one for all) and the routed experts apply them.
	Scales []float32
}

// ScaleStep is how far the scales of two consecutive matrices are apart in Scales: 1, or 0 if
// there are none or one for all.
func (w Weight) ScaleStep() int {
	if len(w.Scales) > 1 {
		return 1
	}
	return 0
}

// Scale is the factor of the products with matrix i.
func (w Weight) Scale(i int) float32 {
	if len(w.Scales) == 0 {
		return 1
	}
	return w.Scales[i*w.ScaleStep()]
}

// RowBytes is the length in bytes of one row.
func (w Weight) RowBytes() int { return w.Type.RowBytes(w.Cols) }

// Stride is the distance in bytes from one row to the next.
func (w Weight) Stride() int {
	if w.RowStride != 0 {
		return w.RowStride
	}
	return w.RowBytes()
}

// MatrixBytes is the distance in bytes from the first byte of a matrix to the end of
// its last row.
func (w Weight) MatrixBytes() int { return (w.Rows-1)*w.Stride() + w.RowBytes() }

// ElementBytes is the bytes of the elements of one matrix, without what lies between its rows.
func (w Weight) ElementBytes() int { return w.Rows * w.RowBytes() }

// Exists reports whether the model has this weight.
func (w Weight) Exists() bool { return len(w.Data) > 0 }

// RowRange is the rows [start, end) of each matrix. Nothing is copied.
func (w Weight) RowRange(start, end int) Weight {
	w.check(start, end, w.Rows, "rows")
	w.Data, w.Rows = w.Data[start*w.Stride():], end-start
	return w
}

// SliceRange is the matrices [start, end) of the stack. Nothing is copied.
func (w Weight) SliceRange(start, end int) Weight {
	w.check(start, end, w.Slices, "matrices")
	w.Data, w.Slices = w.Data[start*w.SliceBytes:], end-start
	if len(w.Scales) > 1 {
		w.Scales = w.Scales[start:end]
	}
	return w
}

// ColumnRange is the columns [start, end) of each matrix, both multiples of the
// type's block. Nothing is copied.
func (w Weight) ColumnRange(start, end int) Weight {
	w.check(start, end, w.Cols, "columns")
	block := w.Type.BlockElements()
	if start%block != 0 || end%block != 0 {
		panic(&Misuse{Op: "Weight", Msg: fmt.Sprintf("columns %d to %d of %q are not whole blocks of %d", start, end, w.Name, block)})
	}
	stride := w.Stride()
	w.Data, w.Cols, w.RowStride = w.Data[w.Type.RowBytes(start):], end-start, stride
	return w
}

// RowGroups is the rows of a matrix as a stack of n matrices of Rows/n rows.
func (w Weight) RowGroups(n int) Weight {
	w.divide(n, w.Rows, 1, "rows")
	w.Rows /= n
	w.Slices, w.SliceBytes = n, w.Rows*w.Stride()
	return w
}

// ColumnGroups is the columns of a matrix as a stack of n matrices of Cols/n columns,
// a multiple of the type's block.
func (w Weight) ColumnGroups(n int) Weight {
	w.divide(n, w.Cols, w.Type.BlockElements(), "columns")
	stride := w.Stride()
	w.Cols /= n
	w.RowStride, w.Slices, w.SliceBytes = stride, n, w.RowBytes()
	return w
}

// check panics with a Misuse unless [start, end) is a range of what, which are n.
func (w Weight) check(start, end, n int, what string) {
	if start < 0 || end <= start || end > n {
		panic(&Misuse{Op: "Weight", Msg: fmt.Sprintf("%s %d to %d of weight %q, which has %d", what, start, end, w.Name, n)})
	}
}

// divide panics with a Misuse unless a plain matrix has n equal groups of what, which
// are all, each a multiple of block.
func (w Weight) divide(n, all, block int, what string) {
	if w.Slices != 1 || n < 1 || all%n != 0 || all/n%block != 0 {
		panic(&Misuse{Op: "Weight", Msg: fmt.Sprintf("%d %s of weight %q (%s, %d matrices) do not make %d groups",
			all, what, w.Name, w.Type, w.Slices, n)})
	}
}
