package deepseek4

import "ringmaster/model/decoder"

// scratch is the buffers of a step, in memory of the backend. T is the most tokens
// of a step.
type scratch struct {
	h    []float32 // [T][S][D] hyper-connection streams
	x    []float32 // [T][D] collapsed, then normalised input of a sub-layer
	y    []float32 // [T][D] output of a sub-layer
	pre  []float32 // [T][S] weights of the streams in the sub-layer's input
	post []float32 // [T][S] weights of its output in the streams
	comb []float32 // [T][S][S] mix of the streams

	qr       []float32 // [T][QRank] low-rank query
	q        []float32 // [T][H][hd]
	kv       []float32 // [T][hd]
	attn     []float32 // [T][H][hd] output of the heads
	low      []float32 // [T][OGroups*ORank] low-rank output
	compKV   []float32 // [T][2*hd]
	compGate []float32 // [T][2*hd]
	idxKV    []float32 // [T][2*IndexDim]
	idxGate  []float32 // [T][2*IndexDim]
	idxQ     []float32 // [T][IndexHeads][IndexDim]
	idxW     []float32 // [T][IndexHeads]
	selected []int32   // [T][IndexTopK]

	headX []float32 // [wanted][D] the streams of wanted rows, collapsed
}

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *forward) StepBuffers(t int) []decoder.Buffer {
	c, s := m.c, &m.scratch
	d, n := c.Embd, c.Streams
	list := []decoder.Buffer{
		{F32: &s.h, Len: t * n * d}, {F32: &s.x, Len: t * d}, {F32: &s.y, Len: t * d},
		{F32: &s.pre, Len: t * n}, {F32: &s.post, Len: t * n}, {F32: &s.comb, Len: t * n * n},
		{F32: &s.qr, Len: t * c.QRank}, {F32: &s.q, Len: t * c.Heads * c.HeadDim}, {F32: &s.kv, Len: t * c.HeadDim},
		{F32: &s.attn, Len: t * c.Heads * c.HeadDim}, {F32: &s.low, Len: t * c.OGroups * c.ORank},
	}
	if c.compressed() {
		list = append(list, decoder.Buffer{F32: &s.compKV, Len: t * 2 * c.HeadDim}, decoder.Buffer{F32: &s.compGate, Len: t * 2 * c.HeadDim})
	}
	if c.indexed() {
		list = append(list, decoder.Buffer{F32: &s.idxKV, Len: t * 2 * c.IndexDim}, decoder.Buffer{F32: &s.idxGate, Len: t * 2 * c.IndexDim},
			decoder.Buffer{F32: &s.idxQ, Len: t * c.IndexHeads * c.IndexDim}, decoder.Buffer{F32: &s.idxW, Len: t * c.IndexHeads},
			decoder.Buffer{I32: &s.selected, Len: t * c.IndexTopK})
	}
	return list
}

// HeadBuffers lists what the output head collapses streams to, for n rows.
func (m *forward) HeadBuffers(n int) []decoder.Buffer {
	return []decoder.Buffer{{F32: &m.scratch.headX, Len: n * m.c.Embd}}
}
