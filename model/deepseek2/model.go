// Package deepseek2 runs models of the architecture "deepseek2": DeepSeek V2, V2-Lite,
// V2.5, V3, R1 and V3.1, Kimi K2, Moonlight, GLM-4.7-Flash. Attention is multi-head
// latent attention (MLA) in its absorbed form: a position is kept as one row, which all
// heads share as key and, without its rotated tail, as value. The layers behind the
// leading ones have a mixture of experts. Every number comes from the file.
//
// "deepseek32" (DeepSeek V3.2) and "glm-dsa" (GLM-5) are the same with sparse attention:
// an indexer chooses the positions whose rows a token reads.
package deepseek2

import (
	"errors"
	"fmt"

	"ringmaster/distributed"
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
	c       *Config
	w       *weights
	b       kernels.Backend
	routed  *moe.Forward
	heads   *parallel.Terms     // outputs of the groups of heads
	ffn     *parallel.Terms     // outputs of the segments of a leading layer's dense FFN; nil if no placement divides it
	gather  *parallel.RowGather // rows of a step that ranks divide
	logits  *decoder.Head
	sizes   parallel.Sizes
	wire    parallel.Wire
	meter   *parallel.Meter
	scratch scratch
	context int // most positions of a sequence
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
	if m.Model, err = m.build(w, b, o); err != nil {
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
	n := &forward{c: c, w: w, b: b, routed: routed, sizes: sizes, logits: decoder.NewHead(b, c.Vocab, meter),
		wire: o.Wire, meter: meter, context: o.Context}
	n.gather = parallel.NewRowGather(b, meter.For("rows"))
	n.heads, err = parallel.NewTerms(b, o.Reduce, headsShape(c, sizes, o.MaxTokens), meter.For("attention"))
	if parts := w.denseParts(c, sizes); parts > 0 && err == nil {
		n.ffn, err = parallel.NewTerms(b, o.Reduce, denseShape(c, parts, o.MaxTokens), meter.For("dense FFN"))
	}
	if err == nil {
		err = decoder.Allocate(b, n.scratch.buffers(c, o.MaxTokens))
	}
	if err != nil {
		routed.Free()
		n.freeTerms()
		return nil, fmt.Errorf("%s: scratch memory for steps of %d tokens: %w", c.Arch, o.MaxTokens, err)
	}
	d, err := decoder.New(n, decoder.Options{
		Info: model.Info{Name: c.Name, Architecture: c.Arch, Vocab: c.Vocab,
			ContextLength: o.Context, MaxTokens: o.MaxTokens, Rewind: o.Context},
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

// rehearse runs steps of one token of the loaded weights on a backend that computes
// nothing and checks the arguments of every op, so that what would be misuse of an op
// later is an error now. One step is the first of a sequence; if the context has room,
// another is so late that the indexer chooses.
func (m *Model) rehearse(w *weights, b kernels.Backend, o Options) error {
	r, err := m.build(w, contract.NewChecker(b), Options{Context: o.Context, MaxTokens: 1})
	if err != nil {
		return err
	}
	positions := []int{0}
	if late := m.c.Index.TopK; late > 0 && late < o.Context {
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

// denseShape is that of the outputs of a dense FFN in so many segments.
func denseShape(c *Config, parts, maxTokens int) parallel.TermsShape {
	return parallel.TermsShape{Terms: parts, Width: c.Embd, MaxTokens: maxTokens}
}

// Config is the model's hyper-parameters.
func (m *Model) Config() Config { return m.c }

// CacheBytes implements decoder.Network.
func (m *forward) CacheBytes(length int) int64 {
	rows, keys := sequenceBytes(m.c, length, m.context)
	return rows + keys
}

// Join implements decoder.Network.
func (m *forward) Join(g *distributed.Group, p parallel.Placement) error {
	m.logits.Join(g, p.Vocabulary())
	m.gather.Join(g)
	if m.ffn != nil {
		if err := m.ffn.Join(g, p.Shared(), m.wire, p.DividesRows()); err != nil {
			return err
		}
	}
	return m.heads.Join(g, p.Heads(), m.wire, p.DividesRows())
}

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
func (m *forward) Experts(layer int) *moe.Layer { return m.w.layers[layer].experts }

// Hidden implements decoder.Network.
func (m *forward) Hidden(row int) []float32 { return m.scratch.x[row*m.c.Embd:][:m.c.Embd] }

// Free implements decoder.Network.
func (m *forward) Free() {
	m.freeTerms()
	m.logits.Free()
	m.scratch.free(m.b, m.c)
}

func (m *forward) freeTerms() {
	m.heads.Free()
	if m.ffn != nil {
		m.ffn.Free()
	}
}
