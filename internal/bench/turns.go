package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringmaster/internal/units"
	"ringmaster/kernels/profile"
)

// turns is measurements that take turns in each repetition, so that what else the host does
// slows all of them alike.
type turns []*Measurement

// plan returns what the options ask for, in the order of the output. The numbers of
// sequences and the precisions of one kind of work take turns.
func (o Options) plan() []turns {
	precisions := []int{0}
	if len(o.Activations) > 1 {
		precisions = nil
		for _, a := range o.Activations {
			precisions = append(precisions, a.Bits())
		}
	}
	if len(o.Drafts) == 0 {
		o.Drafts = []int{0}
	}
	var all []turns
	add := func(m Measurement, sequences, drafts []int) {
		if m.N == 0 {
			return
		}
		var t turns
		for _, m.Activations = range precisions {
			for _, m.Sequences = range sequences {
				for _, m.Drafts = range drafts {
					t = append(t, new(m))
				}
			}
		}
		all = append(all, t)
	}
	for _, n := range o.Prefill {
		add(Measurement{What: "prefill", N: n}, []int{1}, []int{0})
	}
	for _, depth := range o.Depths {
		add(Measurement{What: "decode", N: o.Decode, Depth: depth}, o.Sequences, o.Drafts)
	}
	return all
}

// check refuses what the target cannot measure.
func (b *bench) check(all []turns) error {
	if len(b.o.Activations) > 1 && b.t.CPU == nil {
		return errors.New("--activations: a GPU does not round activations, so there is one precision to measure; use --backend cpu")
	}
	if b.o.Report != "" && len(all) == 0 {
		return errors.New("--report: there is nothing to measure; give --prefill or --decode a number above 0")
	}
	limit := b.t.Model.Info().ContextLength
	for _, t := range all {
		for _, m := range t {
			if m.N+m.Depth+m.Drafts > limit {
				return fmt.Errorf("%s of %d tokens after %d does not fit the context of %d", m.What, m.N, m.Depth, limit)
			}
			if rows := m.Sequences * (1 + m.Drafts); m.Drafts > 0 && rows > b.t.Model.Info().MaxTokens {
				return fmt.Errorf("--drafts: a step of %s with %s each has %d rows; --max-batch allows %d", units.Count(m.Sequences, "sequence"), units.Count(m.Drafts, "draft"), rows, b.t.Model.Info().MaxTokens)
			}
		}
	}
	return nil
}

// round lets the CPU compute with the precision of m.
func (b *bench) round(m *Measurement) {
	for _, a := range b.o.Activations {
		if m.Activations == a.Bits() {
			b.t.CPU.SetActivations(a)
		}
	}
}

// measure runs the repetitions of t. The first is a warm-up that maps the pages of the
// file: its time does not count, but its ops give the bytes per token of a decode. All
// use the same sequences, and the tokens before the work are evaluated in the first's
// precision.
func (b *bench) measure(ctx context.Context, t turns) error {
	most := t[0]
	for _, m := range t {
		if m.Sequences > most.Sequences {
			most = m
		}
	}
	// A repetition rewinds the sequences if possible, instead of building up the depth
	// again.
	rewinds := most.Depth > 0 && most.N <= b.t.Model.Info().Rewind
	var bandwidth bandwidthMeter
	defer bandwidth.close()
	var r *runner
	repetitions := b.o.Repeat + 1
	if b.o.Report != "" {
		repetitions++ // whose ops are measured
	}
	for i := range repetitions {
		for _, m := range t {
			b.round(m)
			if r == nil {
				var err error
				begun := m
				if rewinds {
					begun = most
				}
				if r, err = b.begin(ctx, begun); err != nil {
					return err
				}
			}
			if err := b.repeat(ctx, r.first(m.Sequences), m, i); err != nil {
				return err
			}
			if i > 0 && i <= b.o.Repeat {
				bandwidth.read()
			}
			if !rewinds {
				if err := r.drop(ctx); err != nil {
					return err
				}
				r = nil
			}
		}
		if i == 0 && most.What == "decode" {
			bandwidth = b.openBandwidth()
			bandwidth.read()
		}
	}
	if r != nil {
		if err := r.drop(ctx); err != nil {
			return err
		}
	}
	for _, m := range t {
		bandwidth.report(m)
		if err := b.expect(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// repeat runs repetition i of m on the sequences of r. The one behind the last is for the ops
// of a report.
func (b *bench) repeat(ctx context.Context, r *runner, m *Measurement, i int) error {
	perStep := b.t.Model.Info().MaxTokens
	if m.What == "decode" {
		perStep = 1
	}
	before, err := b.reports(ctx)
	if err != nil {
		return err
	}
	ops := b.t.Profile
	ops.Profile.Reset()
	extra := i > b.o.Repeat
	ops.Measure(i == 0 || extra || b.o.Profile)
	asked := b.onDevice()
	b.expectOps(i > 0 && b.o.Profile)
	start := time.Now()
	if m.Drafts > 0 {
		err = r.decode(ctx, m.Depth, m.N, m.Drafts)
	} else {
		err = r.advance(ctx, m.Depth, m.N, perStep)
	}
	took := time.Since(start).Seconds()
	now := b.onDevice()
	ops.Measure(false)
	b.expectOps(false)
	if err != nil {
		return err
	}
	if extra {
		m.profiled, m.profileTime = ops.Profile.Ops(), time.Duration(took*float64(time.Second))
		return nil
	}
	after, err := b.reports(ctx)
	if err != nil {
		return err
	}
	if i == 0 {
		if m.What == "decode" {
			m.BytesPerToken = weightBytes(ops.Profile.Ops()) / int64(m.N*m.Sequences)
		}
		return nil
	}
	m.Seconds = append(m.Seconds, took)
	m.onDevice = m.onDevice.plus(now.since(asked))
	m.Ranks = addTimes(m.Ranks, between(before, after))
	if b.o.Profile {
		m.ops = profile.Sum(m.ops, ops.Profile.Ops())
	}
	return nil
}
