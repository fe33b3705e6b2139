package groupplan

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// The request by which Share.Auto compares: what a chunk of a prompt and a token of an
// answer take, each as often as there.
const (
	requestPrompt = 512
	requestAnswer = 128
	// DecodeDepth is how many tokens a sequence has before a token of an answer.
	DecodeDepth = 128
	// LeastGain is the part of the time that more exchanges must save.
	LeastGain = 0.02
)

// A chooser compares placements by what is expected of the members.
type chooser struct {
	o     Options // with the context of the plan
	costs *groupCosts
}

// decide chooses the placement with which the members are expected to answer a request
// fastest, and from how many rows on its steps are divided. placements has that of --share
// experts and, with Share.Auto, that of all. The text says what was chosen and why. Without
// costs decide keeps the first placement as it is.
func (c *chooser) decide(ctx context.Context, placements []parallel.Placement) (choice replica.Choice, text string) {
	unknown := replica.Choice{Rows: placements[0][0].Rows}
	if unknown.Rows == 0 && len(placements) < 2 {
		return unknown, ""
	}
	rows := make([]expected, len(placements))
	for i, p := range placements {
		var err error
		if rows[i], err = c.fastest(ctx, p); err != nil {
			return unknown, fmt.Sprintf("--share %s: what to expect is not known: %v\n", c.o.Share, err)
		}
	}
	best, why := 0, ""
	if len(rows) > 1 {
		best, why = better(rows[0], rows[1])
	}
	var w strings.Builder
	c.write(&w, rows)
	if why != "" {
		fmt.Fprintf(&w, "--share auto chose %v: %s\n", parallel.Share(best), why)
	}
	return replica.Choice{Placement: best, Rows: rows[best].from}, w.String()
}

// rowsFrom is the least rows, as a power of two times those of a chunk, from which a step
// is expected to take less time with its rows divided; 0 if no chunk does.
func (c *chooser) rowsFrom(ctx context.Context, p parallel.Placement) (from int, err error) {
	for n := c.chunk(); n >= len(p); n /= 2 {
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
// a chunk of prefill fastest.
func (c *chooser) fastest(ctx context.Context, p parallel.Placement) (expected, error) {
	from, err := c.rowsFrom(ctx, p)
	if err != nil {
		return expected{}, err
	}
	e, err := c.expected(ctx, p.DivideRows(from))
	e.from = from
	return e, err
}

// expected is what steps take with a placement.
type expected struct {
	chunk           int // tokens of prefill
	from            int // rows of the steps that are divided by rows, 0 for none
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
	if gain < LeastGain {
		return 0, of
	}
	return 1, of
}

// chunk is the tokens of a step of prefill that placements are compared by.
func (c *chooser) chunk() int { return min(requestPrompt, c.o.MaxTokens, c.o.Context) }

// expected asks the cost model for a chunk of prefill and a token after 128.
func (c *chooser) expected(ctx context.Context, p parallel.Placement) (e expected, err error) {
	e.chunk = c.chunk()
	if e.prefill, err = c.expect(ctx, p, calibrate.Work{Rows: e.chunk}); err != nil {
		return e, err
	}
	e.decode, err = c.expect(ctx, p, calibrate.Work{Rows: 1, Pos: min(DecodeDepth, c.o.Context-1)})
	return e, err
}

// expect asks the cost model for one step.
func (c *chooser) expect(ctx context.Context, p parallel.Placement, w calibrate.Work) (cost.Estimate, error) {
	return c.costs.expect(ctx, c.o, p, w)
}

// write prints what is expected of each share.
func (c *chooser) write(w io.Writer, rows []expected) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "expected with --share\tprefill of %d tokens\t\tone token after %d\t\trows divided\t\n", rows[0].chunk, DecodeDepth)
	for i, e := range rows {
		share := parallel.Share(i).String()
		if len(rows) == 1 {
			share = c.o.Share.String()
		}
		fmt.Fprintf(t, "%s\t%.1f ms\t± %.0f %%\t%.2f ms\t± %.0f %%\t%s\t\n", share,
			1e3*e.prefill.Seconds, 100*e.prefill.Error, 1e3*e.decode.Seconds, 100*e.decode.Error, fromRows(e.from))
	}
	_ = t.Flush() // to memory
}

// fromRows says from how many rows on something is done, 0 for never.
func fromRows(n int) string {
	if n == 0 {
		return "never"
	}
	return fmt.Sprintf("from %d on", n)
}
