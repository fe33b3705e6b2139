package decoder

import (
	"errors"
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Architecture is a loaded file to Open: what its architecture adds to all others.
type Architecture[C Cache] struct {
	Shape
	Tensors []gguf.Tensor // those of the file that the model uses, for Examine
	// Late are positions at which other ops run than at the first ones, such as those of
	// an indexer.
	Late []int
	// Network makes the forward pass, which embeds the base.
	Network func(base Base) Pass[C]
	// Block is the block for multi-token prediction of OpenOptions.DraftFile, with a
	// Network that makes a Block; nil without that.
	Block *Architecture[C]
}

// Pass is a Network that embeds a Base.
type Pass[C Cache] interface {
	Network[C]
	buffered
	AsBase() *Base
}

// Open makes a model of a file on a backend. limit is the most positions that the file
// allows. load reads the weights after their mapping. One step of each kind runs on a
// backend that checks the arguments of every op, so that misuse of an op is an error of
// Open and not of a later step. The backend prepares for the types of weights that these ops
// use (kernels.Prepare).
func Open[C Cache](f *gguf.File, b kernels.Backend, o OpenOptions, limit int, load func() (*Architecture[C], error)) (*Model[C], error) {
	o, err := o.Resolve(f, limit)
	if err != nil {
		return nil, err
	}
	if err := Map(f, b); err != nil {
		return nil, err
	}
	if o.DraftFile != nil && o.DraftFile != f {
		if err := Map(o.DraftFile, b); err != nil {
			return nil, err
		}
	}
	a, err := load()
	if err != nil {
		return nil, err
	}
	fingerprint := gguf.Fingerprint(f)
	if err := a.prepare(b, o, fingerprint, model.WantLast); err != nil {
		return nil, fmt.Errorf("%s: the %s backend cannot run the model: %w", f.Path(), b.Name(), err)
	}
	m, _, err := a.build(b, o, fingerprint)
	if err != nil {
		return nil, err
	}
	m.weights = a.weights(b, o, fingerprint, model.WantLast)
	if a.Block == nil {
		return m, nil
	}
	if err := a.addDrafter(m, b, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: the block for multi-token prediction: %w", o.DraftFile.Path(), err), m.Close())
	}
	return m, nil
}

// addDrafter opens the block beside the model.
func (a *Architecture[C]) addDrafter(m *Model[C], b kernels.Backend, o OpenOptions) error {
	o = blockOptions(o)
	wants := []model.Want{model.WantNone, model.WantLast}
	if err := a.Block.prepare(b, o, "", wants...); err != nil {
		return fmt.Errorf("the %s backend cannot run it: %w", b.Name(), err)
	}
	block, n, err := a.Block.build(b, o, "")
	if err != nil {
		return err
	}
	pass, ok := n.(Block[C])
	if !ok {
		return errors.Join(fmt.Errorf("%T is no Block", n), block.Close())
	}
	block.weights = a.Block.weights(b, o, "", wants...)
	m.drafter = newDrafter(m.network, block, pass, a.Width)
	return nil
}

// blockOptions are the options of a block beside a model with the options o.
func blockOptions(o OpenOptions) OpenOptions {
	return OpenOptions{Context: o.Context, MaxTokens: min(o.MaxTokens, blockRows), Reduce: parallel.Sum}
}

// build makes the forward pass on a backend.
func (a *Architecture[C]) build(b kernels.Backend, o OpenOptions, fingerprint string) (*Model[C], Pass[C], error) {
	fail := func(err error) (*Model[C], Pass[C], error) {
		return nil, nil, fmt.Errorf("%s: scratch memory for steps of %d tokens: %w", a.Arch, o.MaxTokens, err)
	}
	a.Sizes.Layers = a.Layers
	made, err := newBase(&a.Shape, b, o)
	if err != nil {
		return fail(err)
	}
	n := a.Network(*made)
	base := n.AsBase()
	if err := base.allocate(n); err != nil {
		base.Routed.Free()
		base.freeTerms()
		return fail(err)
	}
	rewind := a.Rewind
	if rewind == 0 {
		rewind = o.Context
	}
	m, err := New(n, Options{
		Info: model.Info{Name: a.Name, Architecture: a.Arch, Vocab: a.Vocab,
			ContextLength: o.Context, MaxTokens: o.MaxTokens, Rewind: rewind},
		Layers: a.Layers, Sizes: a.Sizes, Routed: base.Routed, Meter: base.Meter, Wire: o.Wire,
		Budget: o.SequenceBudget, Backend: b, Fingerprint: fingerprint, Tensors: a.Tensors,
	})
	if err != nil {
		base.Routed.Free()
		n.Free()
		return nil, nil, err
	}
	return m, n, nil
}

// prepare rehearses the ops without a group. Then b prepares for their weights.
func (a *Architecture[C]) prepare(b kernels.Backend, o OpenOptions, fingerprint string, wants ...model.Want) error {
	checked, err := a.rehearse(b, o, fingerprint, joined{}, wants...)
	if err != nil {
		return err
	}
	return kernels.Prepare(b, checked.Uses)
}

// weights returns what lists the bytes of weights that the ops read at a place in a group.
func (a *Architecture[C]) weights(b kernels.Backend, o OpenOptions, fingerprint string, wants ...model.Want) func(joined) ([]kernels.Span, error) {
	return func(at joined) ([]kernels.Span, error) {
		checked, err := a.rehearse(b, o, fingerprint, at, wants...)
		if err != nil {
			return nil, err
		}
		return checked.Spans, nil
	}
}

// NewPlan begins the memory plan of a file with what all architectures have. step and
// head are the buffers of its network (StepBuffers, HeadBuffers).
func (s *Shape) NewPlan(o OpenOptions, sequences int, step, head func(n int) []Buffer) Plan {
	t := o.MaxTokens
	s.Sizes.Layers = s.Layers
	p := Plan{
		Name: s.Name, Layers: s.Layers, Span: o.Layers(s.Layers), Sizes: s.Sizes, Reduce: o.Reduce, Wire: o.Wire, Vocab: s.Vocab, Used: s.Used,
		ContextLimit: s.Context, Context: o.Context, MaxTokens: t, Sequences: sequences,
		Routed: s.routed(t), Heads: s.terms(s.Sizes.Heads, t), DenseFFN: s.terms(s.DenseParts, t),
	}
	base := Base{width: s.Width, buffers: list{step, head}}
	p.Scratch = StepBytes(t) + BufferBytes(step(t)) + BufferBytes(base.headBuffers(t)) + HeadBytes(s.Vocab, t, false) +
		moe.ScratchBytes(p.Routed, o.Reduce)
	p.Scratch += p.Heads.Bytes(o.Reduce)
	if s.DenseParts > 0 {
		p.Scratch += p.DenseFFN.Bytes(o.Reduce)
	}
	return p
}

// list gives the functions that Base calls for buffers.
type list struct{ step, head func(n int) []Buffer }

func (l list) StepBuffers(tokens int) []Buffer { return l.step(tokens) }

func (l list) HeadBuffers(rows int) []Buffer { return l.head(rows) }
