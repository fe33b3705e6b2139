package forecast

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/parallel"
)

// tableRanks are the sizes of the groups in a table.
var tableRanks = []int{1, 2, 4, 8}

// Table prints predictions of groups of equal hosts as rows of Markdown.
func (o *Forecaster) Table(w io.Writer) error {
	first := map[string]float64{} // rate of the smallest group, by the name of a prediction
	var rows strings.Builder
	err := o.groups("table", func(n int, share parallel.Share, all []Prediction) {
		if all == nil {
			fmt.Fprintf(&rows, "| %d | %s | does not fit | | | | | | | | |\n", n, share)
		} else {
			rows.WriteString(tableRow(n, share.String(), all, first))
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "| %s, %s | | prefill 512, t/s | | prefill 2048, t/s | | decode, t/s | | computes, waits for a token, ms | received in prefill 512 (at least) | received for a token (at least) |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n%s", o.Preset+o.Model, o.Link, rows.String())
	return err
}

// groups calls yield with the predictions of groups of hosts like the one given, nil if the
// model does not fit. flag is what asks for them.
func (o *Forecaster) groups(flag string, yield func(n int, share parallel.Share, all []Prediction)) error {
	if len(o.hosts) != 1 || !predictable(o.hosts) || o.Share.Shares.String() != "" {
		return usage.Errorf("--%s needs one --host, with the rate of its memory and its speed, such as 512GiB,800GB/s,28TFLOP/s, and no shares in --share", flag)
	}
	for _, n := range tableRanks {
		group := slices.Repeat(o.hosts, n)
		for _, share := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
			if n == 1 && share == parallel.ShareAll {
				continue // the same
			}
			one := *o
			one.Share = groupplan.Share{Of: share}
			plan, err := one.plan(group)
			o.tracer = one.tracer
			if err != nil {
				return err
			}
			var all []Prediction
			if plan.Fits {
				if all, err = one.predict(plan, group); err != nil {
					return err
				}
			}
			yield(n, share, all)
		}
	}
	return nil
}

// tableRow returns a row of a table. first has the rates of the table's first row; if
// this is it, they are added.
func tableRow(ranks int, share string, all []Prediction, first map[string]float64) string {
	var b strings.Builder
	if ranks == 1 {
		share = ""
	}
	fmt.Fprintf(&b, "| %d | %s |", ranks, share)
	for _, p := range all {
		key := fmt.Sprint(p.What, p.N)
		if first[key] == 0 {
			first[key] = p.Rate
		}
		fmt.Fprintf(&b, " %.1f | %.2f |", p.Rate, p.Rate/first[key])
	}
	decode := all[len(all)-1]
	fmt.Fprintf(&b, " %.2f, %.2f |", 1e3*decode.Compute, 1e3*decode.Waiting)
	for _, p := range []Prediction{all[0], decode} {
		fmt.Fprintf(&b, " %s (%s) |", units.Bytes(p.Received), units.Bytes(p.Least))
	}
	b.WriteString("\n")
	return b.String()
}
