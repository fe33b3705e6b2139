package deepseek4

import "ringmaster/model/decoder"

// scratch is the buffers of a step beside those of hyper.Scratch, in memory of the backend.
// T is the most tokens of a step.
type scratch struct {
	compKV   []float32 // [T][2*hd]
	compGate []float32 // [T][2*hd]
	idxKV    []float32 // [T][2*IndexDim]
	idxGate  []float32 // [T][2*IndexDim]
	idxQ     []float32 // [T][IndexHeads][IndexDim]
	idxW     []float32 // [T][IndexHeads]
	selected []int32   // [T][IndexTopK]

	ids   []int32   // [T][S] the token of each stream
	headX []float32 // [wanted][D] the streams of wanted rows, collapsed
}

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *forward) StepBuffers(t int) []decoder.Buffer {
	c, s := m.c, &m.scratch
	list := append(m.Buffers(t), decoder.Buffer{I32: &s.ids, Len: t * c.Streams})
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
