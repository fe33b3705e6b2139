package calibrate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ringmaster/kernels"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

const (
	fewAlike = 4                    // the least rows that say anything about an expert with several
	longRows = 512                  // of the step in which ops without weights are timed: rows that no cache holds
	someRows = 32                   // of the step that shows how long more take
	quick    = 5 * time.Millisecond // an op that takes less is run twice: the first run may have touched new scratch memory
	rounds   = 5                    // of repetitions at most
	evicted  = 4 << 20              // bytes that leave nothing in the cache of a core
)

// growing are the ops that write to the KV cache of a sequence. Their first run counts,
// because that memory is new in every prefill.
var growing = []string{"StoreKV", "Compress"}

// size tells the measurements of one kind of op apart.
type size struct{ bytes, work float64 }

// meter times the ops of a model on one rank.
type meter struct {
	m       Model
	b       *record.Backend
	now     func() time.Time
	reads   func() int64
	samples map[string]map[size][]float64 // seconds, by kind
	cold    []byte                        // [evicted]

	// Of each step of one token: how many of its ops ran, their seconds one by one, and
	// those of the same ops as steps run them.
	ran          int
	timed, whole []float64
	// flushes is how often such a step waited for its ops: before exchanges, and at its end.
	flushes   int
	exchanges *cost.Trace // that the steps have begun
}

// measureOps times the ops that a rank would run with its part of the placement: those of
// one token, layer by layer as far as the budget reaches and beyond that one of each
// size, and those of many rows, one of each size, in turns until the budget ends. It leaves
// the model in a group that ends, with a sequence.
func measureOps(ctx context.Context, m Model, b *record.Backend, p parallel.Placement, rank int, budget Budget) (cost.Model, error) {
	var begun cost.Trace
	g, err := phantomGroup(ctx, rank, len(p), &begun)
	if err != nil {
		return cost.Model{}, err
	}
	defer func() { _ = g.Close() }() // it holds nothing
	if err := m.Join(g, p); err != nil {
		return cost.Model{}, err
	}
	x := &meter{m: m, b: b, now: budget.Now, reads: budget.Reads, samples: map[string]map[size][]float64{}, cold: make([]byte, evicted), exchanges: &begun}
	if err := x.run(ctx, budget.Ops); err != nil {
		return cost.Model{}, err
	}
	return x.fit()
}

// run is the steps of measureOps. Repetitions take turns, so that what disturbs the host
// for a while disturbs one repetition of each.
func (x *meter) run(ctx context.Context, budget time.Duration) error {
	began := x.now()
	end := began.Add(budget)
	left := func() time.Duration { return end.Sub(x.now()) }
	// The first step brings pages of the file into memory.
	reached, err := x.warm(ctx, began.Add(budget/5))
	if err != nil {
		return err
	}
	token, err := x.took(func() error { return x.timeToken(ctx, reached, x.now().Add(budget/5)) })
	if err != nil {
		return err
	}
	some := min(someRows, x.m.Info().MaxTokens)
	chunk, err := x.took(func() error { return x.timeMany(ctx, some, mixed, end) })
	if err != nil {
		return err
	}
	// Time grows no faster than rows.
	room := func() int { return int(float64(some) * left().Seconds() / max(chunk.Seconds(), 1e-6)) }
	// So few rows choose nearly each expert for one row alone. Rows that choose the same
	// experts show what a further row of an expert takes, which is most of a long chunk.
	if n := min(some, room()); n >= fewAlike {
		if err := x.timeMany(ctx, n, alike, end); err != nil {
			return err
		}
	}
	// Two more steps of many rows, longer ones if there is time.
	many := min((room()-some*int(2*token/max(chunk, 1)))/2, x.m.Info().MaxTokens, x.m.Info().ContextLength)
	if many < 2*some {
		many = some
	}
	long := min(longRows, x.m.Info().MaxTokens, x.m.Info().ContextLength)
	for round := range rounds {
		// Ops that only a long step has, such as the choice among many entries, have no other
		// chance: without their cost nothing could be chosen.
		if round == 0 || left() > 0 {
			if err := x.timeRows(ctx, long, end); err != nil {
				return err
			}
		}
		if left() > token {
			if err := x.timeToken(ctx, reached, end); err != nil {
				return err
			}
		}
		if left() < chunk*time.Duration(many)/time.Duration(some) {
			continue
		}
		if err := x.timeMany(ctx, many, mixed, end); err != nil {
			return err
		}
	}
	return x.timeParts()
}

// timeParts times ops that only steps of other placements have: of this one another op does
// what they do. Their sizes are those of a token's row, of its slots, and of many rows.
func (x *meter) timeParts() error {
	const most, slots, experts = 1 << 18, 1 << 12, 64
	numbers, err := kernels.Make[float32](x.b, most)
	if err != nil {
		return err
	}
	defer kernels.Release(x.b, numbers)
	ids, err := kernels.Make[int32](x.b, 2*slots+experts+1) // the slots' experts, the slots, and the offsets
	if err != nil {
		return err
	}
	defer kernels.Release(x.b, ids)
	x.b.Show(func(op cost.Op, run func()) { x.add(op, x.time(run)) }, false)
	defer x.b.Show(nil, false)
	for range rounds {
		for _, n := range []int{8, slots, most} {
			x.b.Add(numbers, numbers, numbers, n)
			if n < most {
				x.b.ExpertMask(numbers, ids, n, 0, experts)
				x.b.ExpertCompact(kernels.ExpertGroups{Offsets: ids[2*slots:], Slots: ids[slots:]}, ids, n, 1, experts, 0, experts)
			}
		}
	}
	return nil
}

// took is the time of do.
func (x *meter) took(do func() error) (time.Duration, error) {
	start := x.now()
	err := do()
	return x.now().Sub(start), err
}

// step runs a step of so many tokens. Each token id is the stride above the one before.
// The ops are shown to each.
func (x *meter) step(ctx context.Context, rows, stride int, each record.Each) error {
	tokens := make([]int32, rows)
	for i := range tokens {
		tokens[i] = int32((1 + stride*i) % x.m.Info().Vocab)
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

// warm runs a step of one token until a deadline and returns how many ops ran. After the
// deadline it runs one op of each kind all the same, unless that takes as long again.
func (x *meter) warm(ctx context.Context, until time.Time) (map[int]bool, error) {
	reached, kinds, n := map[int]bool{}, map[string]bool{}, 0
	last := until.Add(until.Sub(x.now()))
	err := x.step(ctx, 1, mixed, func(op cost.Op, run func()) {
		now := x.now()
		if now.Before(until) || !kinds[op.Kind] && now.Before(last) {
			x.time(run)
			reached[n], kinds[op.Kind] = true, true
		}
		n++
	})
	return reached, err
}

// timeToken times those ops of a step of one token one by one until a deadline, then runs
// the same ops as steps run them.
func (x *meter) timeToken(ctx context.Context, reached map[int]bool, until time.Time) error {
	n, ran, total, first := 0, 0, 0.0, len(x.timed) == 0
	err := x.step(ctx, 1, mixed, func(op cost.Op, run func()) {
		if reached[n] && (!first || x.now().Before(until) || x.samples[op.Kind] == nil) {
			took := x.warmed(run)
			x.add(op, took)
			total += took
			ran++
		} else {
			delete(reached, n) // later steps run the same ops
		}
		n++
	})
	if err != nil {
		return err
	}
	flushes, pending, begun := 1, false, len(*x.exchanges)
	whole, err := x.took(func() error {
		n := 0
		return x.step(ctx, 1, mixed, func(_ cost.Op, run func()) {
			if now := len(*x.exchanges); now > begun {
				if pending {
					flushes++
				}
				begun, pending = now, false
			}
			if reached[n] {
				run()
				pending = true
			}
			n++
		})
	})
	x.flushes = flushes
	x.ran, x.timed, x.whole = ran, append(x.timed, total), append(x.whole, whole.Seconds())
	return err
}

// Steps of tokens that differ, and of the same token again and again.
const (
	mixed = 7 // from one token to the next
	alike = 0
)

// timeMany times one op of each size of a step of many rows of a new sequence. After a
// deadline it times only kinds without any measurement.
func (x *meter) timeMany(ctx context.Context, rows, stride int, until time.Time) error {
	return x.timeSome(ctx, rows, stride, until, func(cost.Op) bool { return true })
}

// timeRows is timeMany of the ops that only move rows, which take little time, and of kinds
// without any measurement.
func (x *meter) timeRows(ctx context.Context, rows int, until time.Time) error {
	return x.timeSome(ctx, rows, mixed, until, func(op cost.Op) bool { return op.Work == 0 || x.samples[op.Kind] == nil })
}

func (x *meter) timeSome(ctx context.Context, rows, stride int, until time.Time, which func(cost.Op) bool) error {
	x.m.Forget()
	seen := map[string]bool{}
	return x.step(ctx, rows, stride, func(op cost.Op, run func()) {
		if !which(op) {
			return
		}
		key := op.Kind
		if name, _, _ := strings.Cut(key, " "); !slices.Contains(routed, name) { // the sizes of these differ in every layer
			key = fmt.Sprintf("%s %v %v", op.Kind, op.Bytes, op.Work)
		}
		if seen[key] || x.samples[op.Kind] != nil && !x.now().Before(until) {
			return
		}
		seen[key] = true
		took := x.warmed(run)
		if took < quick.Seconds() && !slices.Contains(growing, op.Kind) {
			x.evict()
			took = x.time(run)
		}
		x.add(op, took)
	})
}

// evict clears the cache of this core of an op's operands, because a step touches as much
// between two uses of them. What the op wrote would otherwise be read again much faster.
func (x *meter) evict() {
	for i := 0; i < len(x.cold); i += 64 {
		x.cold[i]++
	}
}

// routed are the ops with sizes that depend on the chosen experts.
var routed = []string{"ExpertGateUp", "ExpertDown"}

// time is the seconds of an op. The end of the step finds a failure of the device.
func (x *meter) time(run func()) float64 {
	start := x.now()
	run()
	_ = x.b.Flush() // a backend that has failed remains failed
	return x.now().Sub(start).Seconds()
}

// warmed is the seconds of an op. An op that read weights from the disk is run again, because
// later steps find them in memory.
func (x *meter) warmed(run func()) float64 {
	before := x.reads()
	took := x.time(run)
	if x.reads() > before {
		took = x.time(run)
	}
	return took
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

// wait is the time until the host sees the end of the shortest op, nearly all of it waiting.
func (x *meter) wait() float64 {
	least := math.Inf(1)
	for _, sizes := range x.samples {
		for _, times := range sizes {
			least = math.Min(least, cost.Median(times))
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// mostTimes is how many times its median a run of an op counts as at most, because a single
// interruption would otherwise decide the mean of few runs.
const mostTimes = 2

// noise returns the noise of short and of long ops, from sizes with enough repetitions; zero
// where there is no such size.
func (x *meter) noise() (short, long cost.Noise) {
	type sums struct{ total, more, squares float64 }
	var of [2]sums
	for _, sizes := range x.samples {
		for _, times := range sizes {
			if len(times) <= enoughTimes {
				continue
			}
			times := times[1:] // the first finds other memory mapped and cached than later ones
			median := cost.Median(times)
			s := &of[0]
			if median >= cost.LongOp {
				s = &of[1]
			}
			for _, t := range times {
				off := math.Min(t/median, mostTimes) - 1
				s.total += median
				s.more += median * off
				s.squares += median * off * off
			}
		}
	}
	for i, out := range []*cost.Noise{&short, &long} {
		if s := of[i]; s.total > 0 {
			*out = cost.Noise{Excess: math.Max(s.more/s.total, 0), Jitter: math.Min(math.Sqrt(s.squares/s.total), cost.MostJitter)}
		}
	}
	return short, long
}

// enoughTimes is, after the first, the least repetitions by which a mean differs from a median.
const enoughTimes = 3

// fit fits a line to each kind.
func (x *meter) fit() (cost.Model, error) {
	out := cost.Model{Ops: map[string]cost.Line{}}
	out.Wait = x.wait()
	out.Short, out.Long = x.noise()
	if x.ran > 0 {
		waits := float64(x.flushes) * out.Wait
		out.Between = (cost.Median(x.whole) - waits - cost.Median(x.timed)) / float64(x.ran)
	}
	out.Spread = math.Max(cost.Spread(x.whole), cost.Spread(x.timed))
	for kind, sizes := range x.samples {
		var s []cost.Sample
		for at, times := range sizes {
			for _, t := range times {
				s = append(s, cost.Sample{Bytes: at.bytes, Work: at.work, Seconds: t})
			}
		}
		l, err := cost.FitOp(s, strings.Contains(kind, " "))
		if err != nil {
			return out, fmt.Errorf("%s: %w", kind, err)
		}
		out.Ops[kind] = l
	}
	return out, nil
}
