package deepseek41

import "ringmaster/model/decoder"

// scratch is the buffers of a step beside those of hyper.Scratch, in memory of the backend.
// T is the most tokens of a step.
type scratch struct {
	carried []float32 // [T][S] weights of the streams of the FFN before, which the next attention takes

	compKV   []float32 // [T][hd] projections of a source
	compGate []float32 // [T][hd] their gates
	latent   []float32 // [T][hd] entries that the step completes
	keys     []float32 // [T][IndexDim] their index keys
	entryPos []int32   // [T] the position at which an entry of ratio 2 is rotated
	entries  int       // of ratio 2 that the step completes
	idxQ     []float32 // [T][IndexHeads][IndexDim]
	idxW     []float32 // [T][IndexHeads]
	selected []int32   // [T][IndexTopK]
	blocks   []int32   // [T][BlocksKept]

	rows   []float32 // [engram layers][T][values] rows of the tables
	gramKV []float32 // [T][S+1][D] their keys and value
}

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *forward) StepBuffers(t int) []decoder.Buffer {
	c, s := m.c, &m.scratch
	list := append(m.Buffers(t), decoder.Buffer{F32: &s.carried, Len: t * c.Streams})
	if c.compressed() {
		list = append(list, []decoder.Buffer{
			{F32: &s.compKV, Len: t * c.HeadDim}, {F32: &s.compGate, Len: t * c.HeadDim},
			{F32: &s.latent, Len: t * c.HeadDim}, {F32: &s.keys, Len: t * c.IndexDim}, {I32: &s.entryPos, Len: t},
			{F32: &s.idxQ, Len: t * c.IndexHeads * c.IndexDim}, {F32: &s.idxW, Len: t * c.IndexHeads},
			{I32: &s.selected, Len: t * c.IndexTopK},
		}...)
	}
	if c.Candidates >= 0 {
		list = append(list, decoder.Buffer{I32: &s.blocks, Len: t * c.BlocksKept})
	}
	if e := &c.Engram; e.exists() {
		list = append(list, decoder.Buffer{F32: &s.rows, Len: len(e.Layers) * t * e.values()},
			decoder.Buffer{F32: &s.gramKV, Len: t * (c.Streams + 1) * c.Embd})
	}
	return list
}

// HeadBuffers lists what the output head needs beside the rows that it picks.
func (m *forward) HeadBuffers(int) []decoder.Buffer { return nil }
