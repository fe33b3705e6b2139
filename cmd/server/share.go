package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"text/tabwriter"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// shareAuto is the value of --share that leaves the choice to the cost model.
const shareAuto = "auto"

// groupCosts is what has been measured on the groups of this leader.
type groupCosts struct {
	mu      sync.Mutex // the planner and the ranks' choice use it
	members []cluster.Hello
	leader  cluster.Hello         // of the last group that was measured
	running bool                  // steps may have run
	ranks   map[string]cost.Model // by process: a member is measured once
	now     calibrate.Costs       // of the members
	links   cost.Links            // of the last group that was measured
	placed  parallel.Placement    // that the members have
	tracer  *calibrate.Tracer     // nil before it is needed
}

// process names a member from epoch to epoch. The leader's hello has no process.
func process(m cluster.Hello) string { return fmt.Sprintf("%d %s", m.Rank, m.Process) }

// join makes the members those of the group that forms, and reports whether their costs
// are known. Once steps have run the ranks hold sequences, and nothing is measured: a
// newcomer is then taken to be like a rank that is known, since all have the same
// kernels.
func (c *groupCosts) join(members []cluster.Hello) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members, c.now, c.placed = members, calibrate.Costs{Links: c.links}, nil
	for _, m := range members {
		ops, ok := c.ranks[process(m)]
		if !ok && (!c.running || len(c.ranks) == 0) {
			c.now = calibrate.Costs{}
			return false
		}
		if !ok {
			ops = c.ranks[process(c.leader)]
		}
		c.now.Models = append(c.now.Models, ops)
	}
	return true
}

// run notes that steps may have run.
func (c *groupCosts) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
}

// keep remembers the costs of the members.
func (c *groupCosts) keep(costs calibrate.Costs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.links, c.leader = costs, costs.Links, c.members[0]
	if c.ranks == nil {
		c.ranks = map[string]cost.Model{}
	}
	if len(c.ranks) > 64 { // processes that are long gone
		clear(c.ranks)
	}
	for r, m := range c.members {
		c.ranks[process(m)] = costs.Models[r]
	}
}

// place notes the placement of the members.
func (c *groupCosts) place(p parallel.Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placed = p
}

// placement is the placement of the members, nil if they have not been measured.
func (c *groupCosts) placement() parallel.Placement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placed
}

// leaderModel is the costs of rank 0's ops; false if they were not measured.
func (c *groupCosts) leaderModel() (cost.Model, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.now.Models) == 0 {
		return cost.Model{}, false
	}
	return c.now.Models[0], true
}

// expect is what a step takes with a placement among the members.
func (c *groupCosts) expect(ctx context.Context, p parallel.Placement, w calibrate.Work, open func(kernels.Backend) (decoder.Decoder, error)) (cost.Estimate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.now.Models) != len(p) {
		return cost.Estimate{}, fmt.Errorf("%d ranks have not been measured", len(p))
	}
	if c.tracer == nil {
		var err error
		if c.tracer, err = calibrate.NewTracer(open); err != nil {
			return cost.Estimate{}, err
		}
	}
	return c.tracer.Expect(ctx, p, c.now, w)
}

// close frees the tracer.
func (c *groupCosts) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracer == nil {
		return nil
	}
	err := c.tracer.Close()
	c.tracer = nil
	return err
}

// The request by which --share auto compares: what a chunk of a prompt and a token of an
// answer take, each as often as there.
const (
	requestPrompt = 512
	requestAnswer = 128
	leastGain     = 0.02 // of the time, for more exchanges
)

// planAuto is planGroup with --share auto: what of the model is divided is left open,
// unless only one choice has room, or the members have been measured before.
func (o *modelOptions) planAuto(f *gguf.File, members []cluster.Hello, w io.Writer, sequences int, held int64) (replica.Settings, error) {
	var text [2]bytes.Buffer
	experts, err := o.planShare(parallel.ShareExperts, f, members, &text[0], sequences, held)
	planned, atMost := o.planned, o.plannedAtMost
	if len(members) == 1 {
		_, _ = w.Write(text[0].Bytes())
		return experts, err
	}
	all, errAll := o.planShare(parallel.ShareAll, f, members, &text[1], sequences, held)
	switch {
	case err != nil && errAll != nil:
		return experts, err
	case err != nil:
		_, _ = w.Write(text[1].Bytes())
		fmt.Fprintf(w, "--share auto chose all, without measuring: with experts alone %v\n", err)
		return all, nil
	case errAll != nil:
		_, _ = w.Write(text[0].Bytes())
		fmt.Fprintf(w, "--share auto chose experts, without measuring: with all %v\n", errAll)
		o.planned, o.plannedAtMost = planned, atMost
		return experts, nil
	}
	o.planned, o.plannedAtMost = max(planned, o.planned), max(atMost, o.plannedAtMost)
	for _, t := range text {
		_, _ = w.Write(t.Bytes())
	}
	experts.Alternatives = []parallel.Placement{all.Placement}
	experts.SequenceBudget = min(experts.SequenceBudget, all.SequenceBudget)
	known := o.costs.join(members)
	switch {
	case known:
		placements := []parallel.Placement{experts.Placement, all.Placement}
		c := o.decide(context.Background(), w, f, placements)
		experts.Placement = c.Of(placements)
		experts.Alternatives, experts.Measure = nil, false
		o.costs.place(experts.Placement)
	case held > 0:
		fmt.Fprintln(w, "--share auto chose experts: the ranks hold requests under way and cannot be measured")
		experts.Alternatives = nil
	default:
		experts.Measure = true
	}
	return experts, nil
}

// choose is the replica.Choose of this rank: the ranks measure, rank 0 decides.
func (o *modelOptions) choose(l *loaded) replica.Choose {
	return func(ctx context.Context, g *distributed.Group, rank replica.Rank, placements []parallel.Placement) (replica.Choice, error) {
		start := time.Now()
		// Ops are timed on all rows of a step: those of other ranks would be missing.
		costs, err := calibrate.Measure(ctx, g, rank, l.record, placements[len(placements)-1].DivideRows(0).MicroBatches(0), calibrate.Standard())
		if err != nil {
			return replica.Choice{}, err
		}
		var choice replica.Choice
		if g.Rank() == 0 {
			slog.Info("the group has been measured", "duration", time.Since(start).Round(time.Millisecond))
			o.costs.keep(costs)
			choice = o.decide(ctx, l.log, l.file, placements)
			o.costs.place(choice.Of(placements))
		}
		agreed, err := calibrate.Agree(ctx, g, choice.Placement, choice.Rows, choice.Micro)
		if err != nil {
			return choice, err
		}
		return replica.Choice{Placement: agreed[0], Rows: agreed[1], Micro: agreed[2]}, nil
	}
}

// decide is the choice among placements, by what the members of the group are expected to
// need for a request: among those with --share experts and all, if there are two, from how
// many rows on a step is divided, and from how many on it is run as two micro-batches. It
// prints the choice and why. What is not known is the first placement as it is.
func (o *modelOptions) decide(ctx context.Context, w io.Writer, f *gguf.File, placements []parallel.Placement) replica.Choice {
	unknown := replica.Choice{Rows: placements[0][0].Rows, Micro: placements[0][0].Micro}
	if unknown.Rows == 0 && len(placements) < 2 {
		return unknown
	}
	rows := make([]expected, len(placements))
	for i, p := range placements {
		var err error
		if rows[i], err = o.fastest(ctx, f, p); err != nil {
			fmt.Fprintf(w, "--share %s: what to expect is not known: %v\n", o.cluster.share, err)
			return unknown
		}
	}
	choice, why := 0, ""
	if len(rows) > 1 {
		choice, why = better(rows[0], rows[1])
	}
	if err := o.writeExpected(w, rows); err != nil {
		slog.Warn("cannot print what is expected of the group", "error", err)
	}
	if why != "" {
		fmt.Fprintf(w, "--share auto chose %v: %s\n", parallel.Share(choice), why)
	}
	return replica.Choice{Placement: choice, Rows: rows[choice].from, Micro: rows[choice].micro}
}

// unmeasuredRows is from how many rows on a step is divided where costs are not known.
const unmeasuredRows = 64

// rowsFrom is the least rows, as a power of two times those of a chunk, from which a step
// is expected to take less time with its rows divided; 0 if no chunk does.
func (o *modelOptions) rowsFrom(ctx context.Context, f *gguf.File, p parallel.Placement) (from int, err error) {
	for n := min(requestPrompt, o.batch, o.ctx); n >= len(p); n /= 2 {
		whole, err := o.expect1(ctx, f, p.DivideRows(0), calibrate.Work{Rows: n})
		if err != nil {
			return 0, err
		}
		divided, err := o.expect1(ctx, f, p.DivideRows(1), calibrate.Work{Rows: n})
		if err != nil {
			return 0, err
		}
		if len(divided.Unknown) > 0 || divided.Seconds > (1-leastGain)*whole.Seconds {
			break
		}
		from = n
	}
	return from, nil
}

// fastest is what is expected of a placement with the divisions of steps that make a chunk
// of prefill fastest: by rows, and into micro-batches. Undivided rows have fewer exchanges,
// longer apart, of which more can be hidden.
func (o *modelOptions) fastest(ctx context.Context, f *gguf.File, p parallel.Placement) (best expected, err error) {
	from, err := o.rowsFrom(ctx, f, p)
	if err != nil {
		return best, err
	}
	ways := []int{from}
	if from > 0 {
		ways = append(ways, 0)
	}
	for i, from := range ways {
		p := p.DivideRows(from)
		micro, err := o.microFrom(ctx, f, p)
		if err != nil {
			return best, err
		}
		if i > 0 && micro == 0 {
			break // rowsFrom has compared it
		}
		e, err := o.expected(ctx, f, p.MicroBatches(micro))
		if err != nil {
			return best, err
		}
		e.from, e.micro = from, micro
		if i == 0 || e.prefill.Seconds < (1-leastGain)*best.prefill.Seconds {
			best = e
		}
	}
	return best, nil
}

// microFrom is the least rows, as a power of two times those of a chunk, from which a step
// is expected to take less time in two micro-batches; 0 if no chunk does. If --micro-batches
// says it, it is that.
func (o *modelOptions) microFrom(ctx context.Context, f *gguf.File, p parallel.Placement) (from int, err error) {
	given, auto, err := o.cluster.microBatches()
	if err != nil || !auto {
		return given, err
	}
	for n := min(requestPrompt, o.batch, o.ctx); n >= 2*len(p); n /= 2 {
		once, err := o.expect1(ctx, f, p.MicroBatches(0), calibrate.Work{Rows: n})
		if err != nil || !mayGain(once) {
			return from, err
		}
		twice, err := o.expect1(ctx, f, p.MicroBatches(n), calibrate.Work{Rows: n})
		if err != nil {
			return 0, err
		}
		if len(twice.Unknown) > 0 || twice.Seconds > (1-leastGain)*once.Seconds {
			break
		}
		from = n
	}
	return from, nil
}

// mayGain reports whether a step may gain enough by two micro-batches: no more than rank 0
// waits in it.
func mayGain(e cost.Estimate) bool { return e.Waiting[0] >= leastGain*e.Seconds }

// expected is what steps take with a placement.
type expected struct {
	chunk           int // tokens of prefill
	from            int // rows of the steps that are divided by rows, 0 for none
	micro           int // rows of the steps that are run as two micro-batches, 0 for none
	prefill, decode cost.Estimate
}

// request is the seconds of the request by which shares are compared.
func (e expected) request() float64 {
	return e.prefill.Seconds*requestPrompt/float64(e.chunk) + requestAnswer*e.decode.Seconds
}

// better is 1 if all, the second, is worth its exchanges, and why or why not.
func better(experts, all expected) (int, string) {
	for _, e := range []expected{experts, all} {
		for _, x := range []cost.Estimate{e.prefill, e.decode} {
			if len(x.Unknown) > 0 {
				return 0, fmt.Sprintf("the cost of %v was not measured", x.Unknown)
			}
		}
	}
	gain := 1 - all.request()/experts.request()
	of := fmt.Sprintf("a request of %d tokens and %d of answer is expected to take %.2f s with all and %.2f s with experts",
		requestPrompt, requestAnswer, all.request(), experts.request())
	if gain < leastGain {
		return 0, of
	}
	return 1, of
}

// expected asks the cost model for a chunk of prefill and a token after 128.
func (o *modelOptions) expected(ctx context.Context, f *gguf.File, p parallel.Placement) (e expected, err error) {
	e.chunk = min(requestPrompt, o.batch, o.ctx)
	if e.prefill, err = o.expect1(ctx, f, p, calibrate.Work{Rows: e.chunk}); err != nil {
		return e, err
	}
	e.decode, err = o.expect1(ctx, f, p, calibrate.Work{Rows: 1, Pos: min(decodeDepth, o.ctx-1)})
	return e, err
}

// expect1 asks the cost model for one step.
func (o *modelOptions) expect1(ctx context.Context, f *gguf.File, p parallel.Placement, w calibrate.Work) (cost.Estimate, error) {
	open, err := o.openOptions()
	if err != nil {
		return cost.Estimate{}, err
	}
	return o.costs.expect(ctx, p, w, func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(f, b, open) })
}

// writeExpected prints what is expected of each share.
func (o *modelOptions) writeExpected(w io.Writer, rows []expected) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "expected with --share\tprefill of %d tokens\t\tone token after %d\t\trows divided\tmicro-batches\t\n", rows[0].chunk, decodeDepth)
	for i, e := range rows {
		share := parallel.Share(i).String()
		if len(rows) == 1 {
			share = o.cluster.share
		}
		fmt.Fprintf(t, "%s\t%.1f ms\t± %.0f %%\t%.2f ms\t± %.0f %%\t%s\t%s\t\n", share,
			1e3*e.prefill.Seconds, 100*e.prefill.Error, 1e3*e.decode.Seconds, 100*e.decode.Error, fromRows(e.from), fromRows(e.micro))
	}
	return t.Flush()
}

// fromRows says from how many rows on something is done, 0 for never.
func fromRows(n int) string {
	if n == 0 {
		return microNever
	}
	return fmt.Sprintf("from %d on", n)
}
