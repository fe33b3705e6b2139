// Package deepseek41 runs models of the architecture "deepseek41" (DeepSeek V4.1): attention
// over a sliding window and compressed entries that several layers share, an indexer that
// chooses among them in two levels, tables of n-grams on disk (engram), a mixture of experts,
// and hyper-connections with a lag. Every number comes from the file. Use it through
// model/arch, which chooses the package by the file.
//
// It follows the text of the published reference where programs differ; no file of real
// weights and no second program has judged it.
package deepseek41

import (
	"slices"

	"ringmaster/distributed"
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
	file    *gguf.File
	tables  *tables // opened by the first step
	counts  rowCounts
	grouped bool
	scratch scratch
	caches  footprint
}

var (
	_ decoder.Decoder      = (*Model)(nil)
	_ decoder.Pass[*cache] = (*forward)(nil)
)

// Open makes the model of a file on a backend. Until Close, the file must stay open and
// nothing else may use the backend. The error names every key and tensor that is missing or
// wrong.
func Open(f *gguf.File, b kernels.Backend, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if o.DraftFile != nil { // DSpark's blocks are of another kind
		return nil, decoder.NoBlock(o.DraftFile)
	}
	return decoder.Open(f, b, o, c.Context, func() (*decoder.Architecture[*cache], error) {
		w, err := load(f, b, &c)
		if err != nil {
			return nil, err
		}
		return &decoder.Architecture[*cache]{
			Shape: c.shape(w.sizes(&c)), Tensors: w.tensors, Late: c.late(),
			Network: func(base decoder.Base) decoder.Pass[*cache] {
				return &forward{Pass: hyper.Pass{Base: base, Shape: &c.Shape}, c: &c, w: w, file: f,
					caches: newFootprint(&c, base.Context, base.MaxTokens)}
			},
		}, nil
	})
}

// late are the first positions at which the indexers of each ratio run and at which blocks
// of entries are kept.
func (c *Config) late() (positions []int) {
	for _, ratio := range c.sources() {
		positions = append(positions, ratio*(c.IndexTopK+1)-1)
	}
	if c.Candidates >= 0 {
		positions = append(positions, c.Roles[c.Candidates].Ratio*(c.BlocksKept*c.BlockSize+1)-1)
	}
	return positions
}

// shape is what all architectures have, with the sizes that the types of the weights allow.
func (c *Config) shape(s parallel.Sizes) decoder.Shape {
	return decoder.Shape{
		Arch: arch, Name: c.Name, Layers: c.Layers, Context: c.Context, Rewind: hyper.Rewind, Vocab: c.Vocab,
		Embd: c.Embd, Width: c.Embd,
		Experts: c.Experts, Used: c.Used, ExpertFF: c.ExpertFF, SharedFF: c.SharedFF, Sizes: s,
	}
}

// Join implements decoder.Network.
func (m *forward) Join(g *distributed.Group, p parallel.Placement) error {
	m.grouped = g != nil
	return m.Pass.Join(g, p)
}

// SetSpan implements decoder.Network.
func (m *forward) SetSpan(layers parallel.Range) {
	m.Pass.SetSpan(layers)
	m.caches = newFootprint(m.c.within(layers), m.Context, m.MaxTokens)
}

// within is the configuration of some layers, for the memory of their KV caches.
func (c *Config) within(layers parallel.Range) *Config {
	n := *c
	n.Layers, n.Roles = layers.Len(), slices.Clone(c.Roles[layers.Start:layers.End])
	for i := range n.Roles {
		n.Roles[i].Source -= layers.Start
	}
	return &n
}

// CacheBytes implements decoder.Network.
func (m *forward) CacheBytes(length int) int64 { return m.caches.sequence(length) }

// CheckpointBytes implements decoder.Network.
func (m *forward) CheckpointBytes() int64 { return m.caches.c.checkpoint() }

// Experts implements decoder.Network.
func (m *forward) Experts(layer int) *moe.Layer { return &m.w.layers[layer].experts }

// Hidden implements decoder.Network: the collapsed streams [D] of the row.
func (m *forward) Hidden(row int) []float32 { return m.X[row*m.c.Embd:][:m.c.Embd] }

// TableRows implements decoder.Tabled.
func (m *forward) TableRows() (kept, read uint64) { return m.counts.kept.Load(), m.counts.read.Load() }

// Stairs implements decoder.Staircase: behind the last layer that makes entries no layer has
// history but its window.
func (m *forward) Stairs() decoder.Stairs {
	s := decoder.Stairs{Reach: m.c.Window - 1, Group: 1}
	for i, r := range m.c.Roles {
		if r.Source == i {
			s.From, s.Group = i, max(s.Group, r.Ratio) // 1 or 2
		}
	}
	if m.c.Engram.exists() {
		s.Before = m.c.Engram.Gram - 1
	}
	return s
}

// Free implements decoder.Network.
func (m *forward) Free() {
	m.tables.close() // of files that were only read
	m.Pass.Free()
}
