package hyper

import "ringmaster/model/decoder"

// Scratch is the buffers of a step that all architectures have, in memory of the backend. T
// is the most tokens of a step.
type Scratch struct {
	H    []float32 // [T][S][D] hyper-connection streams
	X    []float32 // [T][D] collapsed, then normalised input of a sub-layer
	Y    []float32 // [T][D] output of a sub-layer
	Pre  []float32 // [T][S] weights of the streams in a sub-layer's input
	Post []float32 // [T][S] weights of its output in the streams
	Comb []float32 // [T][S][S] mix of the streams

	QR   []float32 // [T][QRank] low-rank query
	Q    []float32 // [T][H][hd]
	KV   []float32 // [T][hd]
	Attn []float32 // [T][H][hd] output of the heads
	Low  []float32 // [T][OGroups*ORank] low-rank output
}

// Buffers lists them for a step of t tokens.
func (m *Pass) Buffers(t int) []decoder.Buffer {
	c, s := m.Shape, &m.Scratch
	d, n := c.Embd, c.Streams
	return []decoder.Buffer{
		{F32: &s.H, Len: t * n * d}, {F32: &s.X, Len: t * d}, {F32: &s.Y, Len: t * d},
		{F32: &s.Pre, Len: t * n}, {F32: &s.Post, Len: t * n}, {F32: &s.Comb, Len: t * n * n},
		{F32: &s.QR, Len: t * c.QRank}, {F32: &s.Q, Len: t * c.Heads * c.HeadDim}, {F32: &s.KV, Len: t * c.HeadDim},
		{F32: &s.Attn, Len: t * c.Heads * c.HeadDim}, {F32: &s.Low, Len: t * c.OGroups * c.ORank},
	}
}
