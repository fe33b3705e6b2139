package calibrate

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// Tracer lists what the ranks of a group would do in a step. Its model is its own and
// runs no ops, so that its buffers are never touched; of the file's data it reads only
// vectors.
type Tracer struct {
	m decoder.Decoder
	b tracing
}

// tracing is a backend that notes ops in a trace and runs none, from note(trace) to note(nil).
type tracing interface {
	kernels.Backend
	note(trace *cost.Trace)
}

// NewTracer makes the tracer of the model that open opens on a backend, with the options
// of the group; the length of steps and of the context bound those of Work.
func NewTracer(open func(b kernels.Backend) (decoder.Decoder, error)) (*Tracer, error) {
	inner, err := cpu.New(1)
	if err != nil {
		return nil, err
	}
	return newTracer(&traced{record.Wrap(inner)}, open)
}

func newTracer(b tracing, open func(b kernels.Backend) (decoder.Decoder, error)) (*Tracer, error) {
	m, err := open(b)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &Tracer{m: m, b: b}, nil
}

// Close frees the model.
func (t *Tracer) Close() error { return errors.Join(t.m.Close(), t.b.Close()) }

// traced is one device that runs all ops.
type traced struct{ *record.Backend }

// ValuesMatter is false, because no weight is computed with.
func (traced) ValuesMatter() bool { return false }

func (b traced) note(trace *cost.Trace) {
	if trace == nil {
		b.Show(nil, false)
		return
	}
	b.Show(func(op cost.Op, _ func()) { *trace = append(*trace, cost.Event{Op: &op}) }, false)
}

// Work is a step: so many tokens of one sequence after so many others. With Until, that of
// model.Entry, it has no logits unless it ends there.
type Work struct{ Rows, Pos, Until int }

// sequence is the one of a tracer.
const sequence model.SeqID = 1

// Traces lists what each rank of a group with the placement does in the step, [ranks].
func (t *Tracer) Traces(ctx context.Context, p parallel.Placement, w Work) ([]cost.Trace, error) {
	if err := t.check(w, t.m.Info().MaxTokens); err != nil {
		return nil, err
	}
	if err := t.advance(ctx, w.Pos); err != nil {
		return nil, err
	}
	out := make([]cost.Trace, len(p))
	for r := range p {
		var err error
		if out[r], err = t.rank(ctx, p, r, w); err != nil {
			return nil, fmt.Errorf("tracing the ops of rank %d: %w", r, err)
		}
	}
	return out, nil
}

// check refuses work of more than so many tokens, or beyond the context.
func (t *Tracer) check(w Work, most int) error {
	if context := t.m.Info().ContextLength; w.Rows < 1 || w.Pos < 0 || w.Rows > most || w.Rows+w.Pos > context {
		return fmt.Errorf("a step of %d tokens after %d; steps have at most %d, sequences %d", w.Rows, w.Pos, most, context)
	}
	return nil
}

// rank is the trace of one rank.
func (t *Tracer) rank(ctx context.Context, p parallel.Placement, r int, w Work) (trace cost.Trace, err error) {
	g, err := phantomGroup(ctx, r, len(p), &trace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.Close() }() // it holds nothing
	if err := t.m.Join(g, p); err != nil {
		return nil, err
	}
	_, err = t.run(ctx, w, model.WantLast, &trace)
	if rule, rank, grouped := t.m.Rule(); grouped && p.Copies() {
		for _, e := range trace {
			if e.Op != nil && e.Op.Chosen != nil {
				e.Op.Chosen.Rule, e.Op.Chosen.Rank = &rule, rank
			}
		}
	}
	return trace, errors.Join(err, t.m.Join(nil, nil))
}

// run runs the step without its ops, which it notes in a trace.
func (t *Tracer) run(ctx context.Context, w Work, want model.Want, trace *cost.Trace) (model.Step, error) {
	if w.Pos+w.Rows < w.Until {
		want = model.WantNone
	}
	s := model.Step{Entries: []model.Entry{{Seq: sequence, Pos: w.Pos, Tokens: make([]int32, w.Rows), Want: want, Until: w.Until}}}
	t.b.note(trace)
	defer t.b.note(nil)
	if err := t.m.Prepare(s); err != nil {
		return s, err
	}
	_, err := t.m.Run(ctx)
	return s, err
}

// advance makes the sequence so long.
func (t *Tracer) advance(ctx context.Context, length int) error {
	if t.m.Len(sequence) > length {
		t.m.Forget()
	}
	for at := t.m.Len(sequence); at < length; at = t.m.Len(sequence) {
		s, err := t.run(ctx, Work{Rows: min(length-at, t.m.Info().MaxTokens), Pos: at}, model.WantNone, &cost.Trace{})
		if err != nil {
			return err
		}
		t.m.Commit(s)
	}
	return nil
}

// Expect is what the step takes with the placement on a group with the costs. With stages the
// work may be several steps, see Pipeline.
func (t *Tracer) Expect(ctx context.Context, p parallel.Placement, c Costs, w Work) (cost.Estimate, error) {
	if p.Staged() {
		pipeline, err := t.Pipeline(ctx, p, c, w)
		if err != nil {
			return cost.Estimate{}, err
		}
		return pipeline.Expect()
	}
	traces, err := t.Traces(ctx, p, w)
	if err != nil {
		return cost.Estimate{}, err
	}
	return cost.Expect(traces, c.Models, c.Links)
}
