package groupplan

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"ringmaster/parallel/cost"
)

// expected is what steps take with a placement.
type expected struct {
	name            string // of the placement
	chunk           int    // tokens of prefill
	from            int    // rows of the steps that are divided by rows, 0 for none
	prefill, decode cost.Estimate
}

// request is the seconds of the request by which placements are compared.
func (e expected) request() float64 {
	return e.prefill.Seconds*RequestPrompt/float64(e.chunk) + RequestAnswer*e.decode.Seconds
}

// known is an error if a cost is missing.
func (e expected) known() error {
	for _, x := range []cost.Estimate{e.prefill, e.decode} {
		if len(x.Unknown) > 0 {
			return fmt.Errorf("the cost of %v was not measured", x.Unknown)
		}
	}
	return nil
}

// lone is what steps take on the fastest rank that can run the model without the others.
type lone struct {
	expected
	name    string // of the rank
	noRoom  bool   // the rank, like every other, has no memory for the whole model
	unknown error  // why nothing is expected
}

// slower says by how much a group is slower than the rank alone, "" if it is not.
func (l lone) slower(group expected) string {
	if l.unknown != nil || l.noRoom {
		return ""
	}
	var all []string
	for _, x := range []struct {
		what       string
		group, one float64
	}{{"prefill", group.prefill.Seconds, l.prefill.Seconds}, {"decode", group.decode.Seconds, l.decode.Seconds}} {
		if x.group > (1+LeastGain)*x.one {
			all = append(all, fmt.Sprintf("%s by %.0f %%", x.what, 100*(x.group/x.one-1)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("slower than %s alone: %s", l.name, strings.Join(all, ", "))
}

// line says in one line what is expected of the chosen placement, of one rank alone, and of
// the placements that were not chosen.
func (c *chooser) line(chosen int, rows []expected, one lone) string {
	var b strings.Builder
	rates := func(e expected, of string) {
		fmt.Fprintf(&b, "%.1f t/s expected", 1/e.decode.Seconds)
		if one.unknown == nil {
			fmt.Fprintf(&b, ", %s%s", ratio(e.decode.Seconds, one.decode.Seconds), of)
		}
		fmt.Fprintf(&b, " (prefill %.0f t/s", float64(e.chunk)/e.prefill.Seconds)
		if one.unknown == nil {
			fmt.Fprintf(&b, ", %s", ratio(e.prefill.Seconds, one.prefill.Seconds))
		}
		b.WriteString(")")
	}
	fmt.Fprintf(&b, "%d ranks: ", len(c.members))
	rates(rows[chosen], " of one")
	for i, e := range rows {
		if i != chosen {
			fmt.Fprintf(&b, "; with %s ", e.name)
			rates(e, "")
		}
	}
	switch slower := one.slower(rows[chosen]); {
	case one.unknown != nil:
		fmt.Fprintf(&b, "; what one rank would take is not known: %v", one.unknown)
	case one.noRoom:
		b.WriteString("; no rank has room for the whole model")
	case slower != "":
		b.WriteString("; " + slower)
	}
	return b.String()
}

// ratio is how many times as fast as one rank a group is, for people.
func ratio(group, one float64) string {
	r := one / group
	if math.Abs(r-1) < 0.095 {
		return fmt.Sprintf("%.2fx", r)
	}
	return fmt.Sprintf("%.1fx", r)
}

// table prints what is expected of each share and of one rank, and what the busiest rank of a
// layer reads of the routed experts over the mean of all, in a prefill and for a token.
func (c *chooser) table(rows []expected, one lone) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "expected with --share\tprefill of %d tokens\t\tone token after %d\t\trows divided\texperts of the busiest rank\t\n", rows[0].chunk, DecodeDepth)
	row := func(name string, e expected, divided, busiest string) {
		fmt.Fprintf(t, "%s\t%.1f ms\t± %.0f %%\t%.2f ms\t± %.0f %%\t%s\t%s\t\n", name,
			1e3*e.prefill.Seconds, 100*e.prefill.Error, 1e3*e.decode.Seconds, 100*e.decode.Error, divided, busiest)
	}
	for _, e := range rows {
		row(e.name, e, fromRows(e.from), fmt.Sprintf("%.2fx, %.2fx of the mean", e.prefill.Imbalance, e.decode.Imbalance))
	}
	if one.unknown == nil {
		row(one.name+" alone", one.expected, "", "")
	}
	_ = t.Flush() // to memory
	return b.String()
}

// fromRows says from how many rows on something is done, 0 for never.
func fromRows(n int) string {
	if n == 0 {
		return "never"
	}
	return fmt.Sprintf("from %d on", n)
}
