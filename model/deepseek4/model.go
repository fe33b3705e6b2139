// Package deepseek4 runs models of the architecture "deepseek4" (DeepSeek V4 Flash and
// Pro): attention over a sliding window and a compressed KV cache, a mixture of experts,
// and hyper-connections in place of residual connections. Every number comes from the
// file. Use it through model/arch, which chooses the package by the file.
package deepseek4

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
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
	hyper.Pass
	c       *Config
	w       *weights
	scratch scratch
	caches  footprint
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
		a := &decoder.Architecture[*cache]{
			Shape: c.shape(w.sizes(&c)), Tensors: w.tensors,
			Network: func(base decoder.Base) decoder.Pass[*cache] {
				return &forward{Pass: hyper.Pass{Base: base, Shape: &c.Shape}, c: &c, w: w, caches: newFootprint(&c, base.Context, base.MaxTokens)}
			},
		}
		if o.DraftFile != nil {
			if a.Block, err = loadBlock(o.DraftFile, f, b, &c, w); err != nil {
				return nil, err
			}
		}
		if c.indexed() {
			a.Late = []int{4*(c.IndexTopK+1) - 1}
		}
		return a, nil
	})
}

// shape is what all architectures have, with the sizes that the types of the weights allow.
func (c *Config) shape(s parallel.Sizes) decoder.Shape {
	return decoder.Shape{
		Arch: arch, Name: c.Name, Layers: c.Layers, Context: c.Context, Rewind: hyper.Rewind, Vocab: c.Vocab,
		Embd: c.Embd, Width: c.Streams * c.Embd,
		Experts: c.Experts, Used: c.Used, ExpertFF: c.ExpertFF, SharedFF: c.SharedFF, Sizes: s,
	}
}

// SetSpan implements decoder.Network.
func (m *forward) SetSpan(layers parallel.Range) {
	m.Pass.SetSpan(layers)
	m.caches = newFootprint(m.c.within(layers), m.Context, m.MaxTokens)
}

// within is the configuration of some layers, for the memory of their KV caches.
func (c *Config) within(layers parallel.Range) *Config {
	n := *c
	n.Ratios = c.Ratios[layers.Start:layers.End]
	return &n
}

// CacheBytes implements decoder.Network.
func (m *forward) CacheBytes(length int) int64 { return m.caches.sequence(length) }

// CheckpointBytes implements decoder.Network.
func (m *forward) CheckpointBytes() int64 { return m.caches.c.checkpoint() }

// Experts implements decoder.Network.
func (m *forward) Experts(layer int) *moe.Layer { return &m.w.layers[layer].experts }

// Hidden implements decoder.Network: the streams [S][D] of the row.
func (m *forward) Hidden(row int) []float32 {
	width := m.c.Streams * m.c.Embd
	return m.H[row*width:][:width]
}
