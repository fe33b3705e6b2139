package deepseek2

import "ringmaster/model/decoder"

// scratch is the buffers of a step, in memory of the backend. T is the most tokens of a
// step.
type scratch struct {
	x []float32 // [T][D] the residual stream
	h []float32 // [T][D] normalised input of a sub-layer
	y []float32 // [T][D] output of a sub-layer

	latent  []float32 // [T][R] latent part of the rows to cache
	rotated []float32 // [T][RotDim] their rotated part
	rows    []float32 // [T][R+RotDim] both
	qr      []float32 // [T][QRank] low-rank query
	q       []float32 // [T][H][Nope+RotDim]
	nope    []float32 // [T][H][Nope] the part that is not rotated
	space   []float32 // [T][H][R] the same in the latent space, then the heads' sums there
	query   []float32 // [T][H][R+RotDim] multiplied with the cached rows
	out     []float32 // [T][H][Value] output of the heads

	indexKey    []float32 // [T][Dim] keys of the indexer
	indexQ      []float32 // [T][Heads][Dim] its queries
	indexWeight []float32 // [T][Heads] weights of its heads
	selected    []int32   // [T][TopK] positions that it chose

	gate []float32 // [T][DenseFF] of a leading layer
	up   []float32 // [T][DenseFF]
}

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *forward) StepBuffers(t int) []decoder.Buffer {
	c, s := m.c, &m.scratch
	heads, x := t*c.Heads, &c.Index
	return []decoder.Buffer{
		{F32: &s.x, Len: t * c.Embd}, {F32: &s.h, Len: t * c.Embd}, {F32: &s.y, Len: t * c.Embd},
		{F32: &s.latent, Len: t * c.KVRank}, {F32: &s.rotated, Len: t * c.RotDim}, {F32: &s.rows, Len: t * c.rowDim()},
		{F32: &s.qr, Len: t * c.QRank}, {F32: &s.q, Len: heads * (c.Nope + c.RotDim)}, {F32: &s.nope, Len: heads * c.Nope},
		{F32: &s.space, Len: heads * c.KVRank}, {F32: &s.query, Len: heads * c.rowDim()}, {F32: &s.out, Len: heads * c.Value},
		{F32: &s.indexKey, Len: t * x.Dim}, {F32: &s.indexQ, Len: t * x.Heads * x.Dim},
		{F32: &s.indexWeight, Len: t * x.Heads}, {I32: &s.selected, Len: t * x.TopK},
		{F32: &s.gate, Len: t * c.DenseFF}, {F32: &s.up, Len: t * c.DenseFF},
	}
}

// HeadBuffers lists nothing, because the wanted rows are normalised in place.
func (m *forward) HeadBuffers(int) []decoder.Buffer { return nil }
