// Package deepseek2 runs models of the architecture "deepseek2": DeepSeek V2, V2-Lite,
// V2.5, V3, R1 and V3.1, Kimi K2, Moonlight, GLM-4.7-Flash. Attention is multi-head
// latent attention (MLA) in its absorbed form: a position is kept as one row, which all
// heads share as key and, without its rotated tail, as value. The layers behind the
// leading ones have a mixture of experts. Every number comes from the file.
//
// "deepseek32" (DeepSeek V3.2) and "glm-dsa" (GLM-5) are the same with sparse attention:
// an indexer chooses the positions that a token reads.
//
// Use it through model/arch, which chooses the package by the file.
package deepseek2

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Options are the choices of Open.
type Options = decoder.OpenOptions

// Model is a loaded model. It implements model.Model.
type Model = decoder.Model[*cache]

// forward is the forward pass: the weights, and buffers for steps of some length. It
// implements decoder.Network.
type forward struct {
	decoder.Base
	c       *Config
	w       *weights
	scratch scratch
}

var (
	_ decoder.Decoder      = (*Model)(nil)
	_ decoder.Pass[*cache] = (*forward)(nil)
)

// Open makes the model of a file on a backend. Until Close, the file must stay
// open and nothing else may use the backend. The error names every key and tensor
// that is missing or wrong.
func Open(f *gguf.File, b kernels.Backend, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	return decoder.Open(f, b, o, c.Context, func() (*decoder.Architecture[*cache], error) {
		w, err := load(f, b, &c)
		if err != nil {
			return nil, err
		}
		sizes := w.sizes(&c)
		a := &decoder.Architecture[*cache]{
			Shape: c.shape(sizes, w.denseParts(&c, sizes)), Tensors: w.tensors, Late: []int{c.Index.TopK},
			Network: func(base decoder.Base) decoder.Pass[*cache] { return &forward{Base: base, c: &c, w: w} },
		}
		if o.DraftFile != nil {
			if a.Block, err = loadBlock(o.DraftFile, b, &c, w); err != nil {
				return nil, err
			}
		}
		return a, nil
	})
}

// shape is what all architectures have, with the sizes that the types of the weights
// allow.
func (c *Config) shape(s parallel.Sizes, denseParts int) decoder.Shape {
	return decoder.Shape{
		Arch: c.Arch, Name: c.Name, Layers: c.Layers, Context: c.Context, Vocab: c.Vocab, Embd: c.Embd, Width: c.Embd,
		Experts: c.Experts, Used: c.Used, ExpertFF: c.ExpertFF, SharedFF: c.SharedFF, Sizes: s, DenseParts: denseParts,
	}
}

// CacheBytes implements decoder.Network.
func (m *forward) CacheBytes(length int) int64 {
	rows, keys := sequenceBytes(m.c, m.Span, length, m.Context)
	return rows + keys
}

// CheckpointBytes implements decoder.Network: later tokens overwrite nothing.
func (m *forward) CheckpointBytes() int64 { return 0 }

// Experts implements decoder.Network.
func (m *forward) Experts(layer int) *moe.Layer { return m.w.layers[layer].experts }

// Hidden implements decoder.Network.
func (m *forward) Hidden(row int) []float32 { return m.scratch.x[row*m.c.Embd:][:m.c.Embd] }
