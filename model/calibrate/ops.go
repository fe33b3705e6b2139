package calibrate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

const (
	someRows = 32                   // of the step that shows how long more take
	quick    = 5 * time.Millisecond // an op that takes less is run twice: the first run may have touched new memory
	each     = 2                    // how often an op of one size is timed in a step of many rows
)

// size tells the measurements of one kind of op apart.
type size struct{ bytes, work float64 }

// meter times the ops of a model on one rank.
type meter struct {
	m       Model
	b       *record.Backend
	now     func() time.Time
	samples map[string]map[size][]float64 // seconds, by kind
}

// measureOps times the ops that a rank would run with its part of the placement: those
// of one token, layer by layer as far as the budget reaches and beyond that one of each
// size, then those of many rows, one or two of each size.
func measureOps(ctx context.Context, m Model, b *record.Backend, p parallel.Placement, rank int, budget Budget) (cost.Model, error) {
	var ignored cost.Trace
	g, err := phantomGroup(ctx, rank, len(p), &ignored)
	if err != nil {
		return cost.Model{}, err
	}
	defer func() { _ = g.Close() }() // nothing is behind it
	if err := m.Join(g, p); err != nil {
		return cost.Model{}, err
	}
	x := &meter{m: m, b: b, now: budget.Now, samples: map[string]map[size][]float64{}}
	between, err := x.run(ctx, budget.Ops)
	m.Forget()
	if err == nil {
		err = m.Join(nil, nil)
	}
	if err != nil {
		return cost.Model{}, err
	}
	return x.fit(between)
}

// run is the steps of measureOps; the result is the seconds between two ops.
func (x *meter) run(ctx context.Context, budget time.Duration) (float64, error) {
	end := x.now().Add(budget)
	// The first step brings pages of the file into memory.
	reached, err := x.warm(ctx, x.now().Add(budget/5))
	if err != nil {
		return 0, err
	}
	timed, ran, until := 0.0, 0, x.now().Add(budget/5)
	for i := 0; i < 3 && (i == 0 || x.now().Before(until)); i++ {
		if timed, ran, err = x.timeOne(ctx, reached, until); err != nil {
			return 0, err
		}
	}
	between, err := x.between(ctx, reached, timed, ran)
	if err != nil {
		return 0, err
	}
	some := min(someRows, x.m.Info().MaxTokens)
	start := x.now()
	if err := x.timeMany(ctx, some, end); err != nil {
		return 0, err
	}
	took := x.now().Sub(start)
	// Time grows no faster than rows.
	many := min(int(float64(some)*end.Sub(x.now()).Seconds()/max(took.Seconds(), 1e-6)), x.m.Info().MaxTokens, x.m.Info().ContextLength)
	if many < 2*some {
		return between, nil
	}
	return between, x.timeMany(ctx, many, end)
}

// step runs a step of so many tokens, whose ops are shown to each.
func (x *meter) step(ctx context.Context, rows int, each record.Each) error {
	tokens := make([]int32, rows)
	for i := range tokens {
		tokens[i] = int32((1 + 7*i) % x.m.Info().Vocab)
	}
	err := x.m.Prepare(model.Step{Entries: []model.Entry{{Seq: 1, Tokens: tokens, Want: model.WantLast}}})
	if err != nil {
		return err
	}
	x.b.Show(each, true)
	defer x.b.Show(nil, false)
	_, err = x.m.Run(ctx)
	return err
}

// warm runs a step of one token until a deadline and returns how many ops ran. Of those
// behind the deadline one of each kind runs all the same, unless it takes as long
// again.
func (x *meter) warm(ctx context.Context, until time.Time) (map[int]bool, error) {
	reached, kinds, n := map[int]bool{}, map[string]bool{}, 0
	last := until.Add(until.Sub(x.now()))
	var failed error
	err := x.step(ctx, 1, func(op cost.Op, run func()) {
		now := x.now()
		if now.Before(until) || !kinds[op.Kind] && now.Before(last) {
			run()
			if err := x.b.Flush(); err != nil && failed == nil {
				failed = err
			}
			reached[n], kinds[op.Kind] = true, true
		}
		n++
	})
	if err == nil {
		err = failed
	}
	return reached, err
}

// timeOne times those ops of a step of one token until a deadline. It returns their
// seconds and how many ran.
func (x *meter) timeOne(ctx context.Context, reached map[int]bool, until time.Time) (total float64, ran int, err error) {
	n := 0
	err = x.step(ctx, 1, func(op cost.Op, run func()) {
		if reached[n] && (x.now().Before(until) || x.samples[op.Kind] == nil) {
			took := x.time(run)
			x.add(op, took)
			total += took
			ran++
		} else {
			delete(reached, n) // between runs the same ops
		}
		n++
	})
	return total, ran, err
}

// between runs the ops that reached has left, as steps run them, and returns how much
// longer they take than timed one by one, for each op.
func (x *meter) between(ctx context.Context, reached map[int]bool, timed float64, ran int) (float64, error) {
	if ran == 0 {
		return 0, nil
	}
	start, n := x.now(), 0
	err := x.step(ctx, 1, func(_ cost.Op, run func()) {
		if reached[n] {
			run()
		}
		n++
	})
	if err != nil {
		return 0, err
	}
	return (x.now().Sub(start).Seconds() - timed) / float64(ran), nil
}

// timeMany times an op or two of each size of a step of many rows.
func (x *meter) timeMany(ctx context.Context, rows int, until time.Time) error {
	seen := map[string]int{}
	return x.step(ctx, rows, func(op cost.Op, run func()) {
		key := op.Kind
		if !slices.Contains(routed, firstWord(op.Kind)) { // the sizes of these differ in every layer
			key = fmt.Sprintf("%s %v %v", op.Kind, op.Bytes, op.Work)
		}
		if seen[key] >= each || seen[key] > 0 && !x.now().Before(until) {
			return
		}
		seen[key]++
		took := x.time(run)
		if took < quick.Seconds() {
			took = min(took, x.time(run))
		}
		x.add(op, took)
	})
}

// routed are the ops whose sizes depend on the chosen experts.
var routed = []string{"ExpertGateUp", "ExpertDown"}

func firstWord(s string) string {
	for i, c := range s {
		if c == ' ' {
			return s[:i]
		}
	}
	return s
}

// time is the seconds of an op. A failure of the device is found by the end of the step.
func (x *meter) time(run func()) float64 {
	start := x.now()
	run()
	_ = x.b.Flush() // a backend that has failed remains failed
	return x.now().Sub(start).Seconds()
}

func (x *meter) add(op cost.Op, seconds float64) {
	if op.Chosen == nil && op.Bytes == 0 && op.Work == 0 {
		return // none of the chosen experts is the rank's
	}
	if x.samples[op.Kind] == nil {
		x.samples[op.Kind] = map[size][]float64{}
	}
	s := size{op.Bytes, op.Work}
	x.samples[op.Kind][s] = append(x.samples[op.Kind][s], math.Max(seconds, 1e-9))
}

// fit fits a line to the medians of each size, so that each counts alike.
func (x *meter) fit(between float64) (cost.Model, error) {
	out := cost.Model{Ops: map[string]cost.Line{}, Between: between}
	for kind, sizes := range x.samples {
		var s []cost.Sample
		for at, times := range sizes {
			slices.Sort(times)
			s = append(s, cost.Sample{Bytes: at.bytes, Work: at.work, Seconds: times[(len(times)-1)/2]})
		}
		l, err := cost.Fit(s)
		if err != nil {
			return out, fmt.Errorf("%s: %w", kind, err)
		}
		out.Ops[kind] = l
	}
	return out, nil
}
