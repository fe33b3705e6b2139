package deepseek4

import (
	"ringmaster/kernels"
	"ringmaster/model/decoder"
)

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

	rows   []int32   // [wanted] rows whose logits are wanted
	picked []float32 // [wanted][S][D] their streams
	headX  []float32 // [wanted][D]
	wanted int       // capacity of the three above, in rows
}

// buffers are the buffers of a step of t tokens, those of the output head left out.
func (s *scratch) buffers(c *Config, t int) []decoder.Buffer {
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

// head are the buffers of the output head for n rows.
func (s *scratch) head(c *Config, n int) []decoder.Buffer {
	return []decoder.Buffer{
		{I32: &s.rows, Len: n}, {F32: &s.picked, Len: n * c.Streams * c.Embd},
		{F32: &s.headX, Len: n * c.Embd},
	}
}

// scratchBytes is the bytes of the buffers of a step of t tokens whose logits are all
// wanted.
func scratchBytes(c *Config, t int) int64 {
	var s scratch
	return decoder.StepBytes(t) + decoder.BufferBytes(s.buffers(c, t)) + decoder.BufferBytes(s.head(c, t)) +
		decoder.HeadBytes(c.Vocab, t, false)
}

// reserveHead allocates the buffers of the output head for n rows.
func (s *scratch) reserveHead(b kernels.Backend, c *Config, n int) error {
	if n <= s.wanted {
		return nil
	}
	decoder.Free(b, s.head(c, 0))
	s.wanted = 0
	if err := decoder.Allocate(b, s.head(c, n)); err != nil {
		return err
	}
	s.wanted = n
	return nil
}

func (s *scratch) free(b kernels.Backend, c *Config) {
	decoder.Free(b, s.buffers(c, 0))
	decoder.Free(b, s.head(c, 0))
	s.wanted = 0
}
