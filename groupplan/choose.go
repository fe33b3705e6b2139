package groupplan

import (
	"context"
	"fmt"
	"math"

	"ringmaster/distributed/cluster"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// The request by which Share.Auto compares: what a chunk of a prompt and a token of an
// answer take, each as often as there.
const (
	// RequestPrompt and RequestAnswer are its tokens.
	RequestPrompt = 512
	RequestAnswer = 128
	// DecodeDepth is how many tokens a sequence has before a token of an answer.
	DecodeDepth = 128
	// LeastGain is the part of the time that more exchanges must save.
	LeastGain = 0.02
)

// A chooser compares placements by what is expected of the members.
type chooser struct {
	o       Options         // with the context of the plan
	members []cluster.Hello // as many as costs has models
	costs   calibrate.Costs
	tracer  func() (*calibrate.Tracer, error)
}

// decision is what a chooser chose, and why.
type decision struct {
	replica.Choice
	text    string // for people: a table, and a line that says what was chosen
	line    string // what was chosen and what is expected of it, or why nothing is known
	slower  string // by how much the choice is slower than a rank alone, "" if it is not
	unknown error  // why nothing could be compared; the choice is then the fallback
}

// decide chooses the placement with which the members are expected to answer a request
// fastest, and from how many rows on its steps are divided. placements has that of --share
// experts and, with Share.Auto, that of all and perhaps that of stages. Where the costs do not
// say what to expect, the first placement stays.
func (c *chooser) decide(ctx context.Context, placements []parallel.Placement) decision {
	var rows []expected
	for i, p := range placements {
		e, err := c.fastest(ctx, p)
		if err == nil {
			err = e.known()
		}
		switch {
		case err != nil && i > 0 && p.Staged():
			continue // experts and all can be compared without
		case err != nil:
			return c.o.fallback(placements, err)
		case len(placements) > 1:
			e.name = choiceNames[i]
		case p.Staged():
			e.name = "stages " + StagesOf(p).String()
		default:
			e.name = c.o.Share.String()
		}
		rows = append(rows, e)
	}
	best := fastestOf(rows)
	one := c.alone(ctx, placements[0].Sizes())
	d := decision{Choice: replica.Choice{Placement: best, Rows: rows[best].from}, slower: one.slower(rows[best])}
	d.line = c.line(best, rows, one)
	if len(rows) > 1 { // else the plan says why there was no choice
		d.line = fmt.Sprintf("--share auto chose %s; %s", rows[best].name, d.line)
	}
	d.text = c.table(rows, one) + d.line + "\n"
	return d
}

// fallback is the decision without costs, and why there are none.
func (o Options) fallback(placements []parallel.Placement, why error) decision {
	d := decision{Choice: unmeasured(placements), unknown: why}
	if !o.Share.Auto {
		d.text = fmt.Sprintf("--share %s: what to expect is not known: %v\n", o.Share, why)
		return d
	}
	d.line = fmt.Sprintf("--share auto divides the experts alone: %v", why)
	d.text = d.line + "\n"
	return d
}

// unmeasured is the choice if nothing is known: the experts alone are divided, and no rows,
// or the only placement stays as it is.
func unmeasured(placements []parallel.Placement) replica.Choice {
	if len(placements) > 1 {
		return replica.Choice{}
	}
	return replica.Choice{Rows: placements[0][0].Rows}
}

// kept is the decision of an epoch that re-forms: comparing again would take a second, for
// which running answers would wait, and another choice would change their last bits with
// --reduce sum.
func kept(c replica.Choice) decision {
	line := fmt.Sprintf("--share auto keeps %s, which it chose when the group was measured", choiceNames[c.Placement])
	return decision{Choice: c, line: line, text: line + "\n"}
}

// rowsFrom is the least rows, as a power of 1/4 of those of a chunk, from which a step is
// expected to take less time with its rows divided; 0 if no chunk does.
func (c *chooser) rowsFrom(ctx context.Context, p parallel.Placement) (from int, err error) {
	for n := c.chunk(); n >= len(p); n /= 4 {
		whole, err := c.expect(ctx, p.DivideRows(0), calibrate.Work{Rows: n})
		if err != nil {
			return 0, err
		}
		divided, err := c.expect(ctx, p.DivideRows(1), calibrate.Work{Rows: n})
		if err != nil {
			return 0, err
		}
		if len(divided.Unknown) > 0 || divided.Seconds > (1-LeastGain)*whole.Seconds {
			break
		}
		from = n
	}
	return from, nil
}

// fastest is what is expected of a placement with the division of steps by rows that makes
// a chunk of prefill fastest, if it may divide rows.
func (c *chooser) fastest(ctx context.Context, p parallel.Placement) (expected, error) {
	if p.Staged() { // the division by rows inside of its stages is given
		e, err := c.expected(ctx, p)
		e.from = p[0].Rows
		return e, err
	}
	from := 0
	if p.DividesRows() {
		var err error
		if from, err = c.rowsFrom(ctx, p); err != nil {
			return expected{}, err
		}
	}
	e, err := c.expected(ctx, p.DivideRows(from))
	e.from = from
	return e, err
}

// fastestOf is the placement to take of that of experts, and perhaps those of all and of
// stages: all if it is worth its exchanges, and stages if they are worth what they lack.
func fastestOf(rows []expected) int {
	best := 0
	if len(rows) > 1 && rows[1].request() <= (1-LeastGain)*rows[0].request() {
		best = 1
	}
	if len(rows) > 2 && WorthStages(rows[2].request(), rows[best].request()) {
		best = 2
	}
	return best
}

// chunk is the tokens of a step of prefill that placements are compared by.
func (c *chooser) chunk() int { return min(RequestPrompt, c.o.MaxTokens, c.o.Context) }

// works are the steps that placements are compared by: a chunk of prefill, and a token of
// an answer.
func (c *chooser) works() [2]calibrate.Work {
	return [2]calibrate.Work{{Rows: c.chunk()}, {Rows: 1, Pos: min(DecodeDepth, c.o.Context-1)}}
}

// expected asks the cost model for both steps.
func (c *chooser) expected(ctx context.Context, p parallel.Placement) (e expected, err error) {
	e.chunk = c.chunk()
	for i, out := range []*cost.Estimate{&e.prefill, &e.decode} {
		if *out, err = c.expect(ctx, p, c.works()[i]); err != nil {
			return e, err
		}
	}
	return e, nil
}

// expect asks the cost model for one step of the members.
func (c *chooser) expect(ctx context.Context, p parallel.Placement, w calibrate.Work) (cost.Estimate, error) {
	switch {
	case c.costs.Missing != "":
		return cost.Estimate{}, fmt.Errorf("the ranks could not be measured: %s", c.costs.Missing)
	case len(c.costs.Models) != len(p):
		return cost.Estimate{}, fmt.Errorf("%d ranks have not been measured", len(p))
	}
	t, err := c.tracer()
	if err != nil {
		return cost.Estimate{}, err
	}
	if p.Helped() {
		return c.expectHelped(ctx, t, p, w)
	}
	return t.Expect(ctx, p, c.costs, w)
}

// alone is what is expected of the member that would answer a request fastest without the
// others, among those with memory for the whole model if there are any.
func (c *chooser) alone(ctx context.Context, sizes parallel.Sizes) lone {
	p, err := parallel.Place(parallel.ShareExperts, sizes, []float64{1})
	if err != nil {
		return lone{unknown: err}
	}
	best, least := lone{noRoom: true}, math.Inf(1)
	for i, m := range c.members {
		one := *c
		one.members, one.costs = c.members[i:i+1], calibrate.Costs{Models: c.costs.Models[i : i+1], Links: c.costs.Links}
		e, err := one.expected(ctx, p)
		if err == nil {
			err = e.known()
		}
		if err != nil {
			return lone{unknown: err}
		}
		_, err = c.o.divide(parallel.ShareExperts, one.members, 0)
		noRoom := err != nil
		if s := e.request(); best.noRoom && !noRoom || best.noRoom == noRoom && s < least {
			least, best = s, lone{expected: e, name: m.Name(), noRoom: noRoom}
		}
	}
	return best
}

// Decide makes the choice of a plan with an alternative by costs that were not measured on
// the members, and returns the plan of the choice with a line that says what is expected. A
// plan without an alternative stays, and the line is about it. The tracer is for the context
// of the options.
func (o Options) Decide(ctx context.Context, p Planned, members []cluster.Hello, costs calibrate.Costs, t *calibrate.Tracer) (Planned, string, error) {
	c := &chooser{o: o, members: members, costs: costs, tracer: func() (*calibrate.Tracer, error) { return t, nil }}
	if p.helper != nil {
		if len(o.Share.Shares.Numbers) > 0 {
			return p, "", nil // the speeds are given
		}
		d := c.decideHelper(ctx, p)
		return p.choose(d.Choice), d.line, d.unknown
	}
	d := c.decide(ctx, p.placements())
	if d.unknown != nil {
		return p, "", d.unknown
	}
	return p.choose(d.Choice), d.line, nil
}
