package moe

import (
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// FFN is a feed-forward network with SwiGLU that every token passes: the shared expert of
// a layer, or the dense network of a layer without experts. Its width F has equal
// segments, and a rank computes some of them.
type FFN struct {
	Gate, Up kernels.Weight // [F][D]
	Down     kernels.Weight // [D][F]
	Clamp    float32        // limit of SwiGLU's inputs, 0 for none
	Segments int
}

// columns returns the range of hidden activations of some segments.
func (n FFN) columns(own parallel.Range) (from, to int) {
	each := n.Down.Cols / n.Segments
	return own.Start * each, own.End * each
}

// Hidden returns the product that computes the hidden activations of some segments for x
// [rows][D] into gate [rows][own*F/Segments]; up is scratch memory of the same length.
func (n FFN) Hidden(own parallel.Range, gate, up []float32) kernels.Product {
	from, to := n.columns(own)
	return kernels.Product{W: n.Gate.RowRange(from, to), Out: gate, Up: n.Up.RowRange(from, to), UpOut: up, Clamp: n.Clamp}
}

// Output encodes the output of some segments from the gate that Hidden has filled. With
// separate it writes each segment into out [rows][own][D], otherwise their sum into out
// [rows][D].
func (n FFN) Output(b kernels.Backend, own parallel.Range, separate bool, out, gate []float32, rows int) {
	if separate {
		b.MatMulGrouped(out, gate, rows, n.Down.ColumnGroups(n.Segments).SliceRange(own.Start, own.End))
		return
	}
	from, to := n.columns(own)
	b.MatMul(gate, rows, kernels.Product{W: n.Down.ColumnRange(from, to), Out: out})
}
