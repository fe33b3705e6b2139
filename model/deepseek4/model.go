// Package deepseek4 runs models of the architecture "deepseek4" (DeepSeek V4
// Flash and Pro): attention over a sliding window and a compressed KV cache, a
// mixture of experts, and hyper-connections in place of residual connections.
// Every number comes from the file.
package deepseek4

import (
	"errors"
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Options are the choices of Open.
type Options = decoder.OpenOptions

// Model is a loaded model. It implements model.Model.
type Model struct {
	*decoder.Model[*cache]
	c           Config
	fingerprint string // of the file
}

// forward is the forward pass: the weights, and buffers for steps of some length. It
// implements decoder.Network.
type forward struct {
	c         *Config
	w         *weights
	b         kernels.Backend
	routed    *moe.Forward
	heads     *parallel.Terms     // outputs of the groups of heads
	gather    *parallel.RowGather // rows of a step that ranks divide
	logits    *decoder.Head
	sizes     parallel.Sizes
	wire      parallel.Wire
	meter     *parallel.Meter
	scratch   scratch
	context   int // most positions of a sequence
	maxTokens int
	caches    footprint
}

var (
	_ decoder.Decoder         = (*Model)(nil)
	_ decoder.Network[*cache] = (*forward)(nil)
)

// Open makes the model of a file on a backend. Until Close, the file must stay
// open and nothing else may use the backend. The error names every key and tensor
// that is missing or wrong.
func Open(f *gguf.File, b kernels.Backend, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if o, err = o.Resolve(f, c.Context); err != nil {
		return nil, err
	}
	if err := decoder.Map(f, b); err != nil {
		return nil, err
	}
	w, err := load(f, b, &c)
	if err != nil {
		return nil, err
	}
	m := &Model{c: c, fingerprint: gguf.Fingerprint(f)}
	if err := m.rehearse(w, b, o); err != nil {
		return nil, fmt.Errorf("%s: the %s backend cannot run the model: %w", f.Path(), b.Name(), err)
	}
	m.Model, err = m.build(w, b, o)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// build makes the forward pass of loaded weights on a backend.
func (m *Model) build(w *weights, b kernels.Backend, o Options) (*decoder.Model[*cache], error) {
	c := &m.c
	meter, sizes := parallel.NewMeter(o.Now), w.sizes(c)
	routed, err := moe.NewForward(b, expertShape(c, sizes, o.MaxTokens), o.Reduce, meter)
	if err != nil {
		return nil, err
	}
	n := &forward{c: c, w: w, b: b, routed: routed, sizes: sizes, logits: decoder.NewHead(b, c.Vocab, meter), wire: o.Wire, meter: meter,
		context: o.Context, maxTokens: o.MaxTokens, caches: newFootprint(c, o.Context, o.MaxTokens)}
	n.gather = parallel.NewRowGather(b, meter.For("rows"))
	n.heads, err = parallel.NewTerms(b, o.Reduce, headsShape(c, sizes, o.MaxTokens), meter.For("attention"))
	if err == nil {
		err = decoder.Allocate(b, n.scratch.buffers(c, o.MaxTokens))
	}
	if err != nil {
		routed.Free()
		n.heads.Free()
		return nil, fmt.Errorf("deepseek4: scratch memory for steps of %d tokens: %w", o.MaxTokens, err)
	}
	d, err := decoder.New(n, decoder.Options{
		Info: model.Info{Name: c.Name, Architecture: arch, Vocab: c.Vocab,
			ContextLength: o.Context, MaxTokens: o.MaxTokens, Rewind: rewind},
		Layers: c.Layers, Sizes: sizes, Routed: routed, Meter: meter, Wire: o.Wire,
		Budget: o.SequenceBudget, Backend: b, Fingerprint: m.fingerprint, Tensors: w.tensors,
	})
	if err != nil {
		routed.Free()
		n.Free()
		return nil, err
	}
	return d, nil
}

// rehearse runs steps of one token of the loaded weights on a backend that
// computes nothing and checks the arguments of every op, so that what would be misuse
// of an op later is an error now. One step is the first of a sequence; if the context
// has room, another is so late that the indexer runs.
func (m *Model) rehearse(w *weights, b kernels.Backend, o Options) error {
	r, err := m.build(w, contract.NewChecker(b), Options{Context: o.Context, MaxTokens: 1})
	if err != nil {
		return err
	}
	positions := []int{0}
	if late := 4*(m.c.IndexTopK+1) - 1; m.c.indexed() && late < o.Context {
		positions = append(positions, late)
	}
	return errors.Join(r.Rehearse(positions...), r.Close())
}

func expertShape(c *Config, s parallel.Sizes, maxTokens int) moe.Shape {
	return moe.Shape{Embd: c.Embd, FF: c.ExpertFF, Experts: c.Experts, Used: c.Used,
		SharedFF: c.SharedFF, Segments: s.Shared, MaxTokens: maxTokens}
}

func headsShape(c *Config, s parallel.Sizes, maxTokens int) parallel.TermsShape {
	return parallel.TermsShape{Terms: s.Heads, Width: c.Embd, MaxTokens: maxTokens}
}

// Config is the model's hyper-parameters.
func (m *Model) Config() Config { return m.c }

// CacheBytes implements decoder.Network.
func (m *forward) CacheBytes(length int) int64 { return m.caches.sequence(length) }

// ReserveHead implements decoder.Network.
func (m *forward) ReserveHead(rows int) error {
	if !m.logits.Takes() {
		return nil
	}
	if err := m.scratch.reserveHead(m.b, m.c, rows); err != nil {
		return err
	}
	return m.logits.Reserve(rows)
}

// Experts implements decoder.Network.
func (m *forward) Experts(layer int) *moe.Layer { return &m.w.layers[layer].experts }

// Hidden implements decoder.Network: the streams [S][D] of the row.
func (m *forward) Hidden(row int) []float32 {
	width := m.c.Streams * m.c.Embd
	return m.scratch.h[row*width:][:width]
}

// Free implements decoder.Network.
func (m *forward) Free() {
	m.heads.Free()
	m.logits.Free()
	m.scratch.free(m.b, m.c)
}
