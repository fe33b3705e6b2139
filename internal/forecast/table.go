package forecast

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ringmaster/groupplan"
	"ringmaster/internal/usage"
	"ringmaster/parallel"
)

// tableRanks are the sizes of the groups in a table.
var tableRanks = []int{1, 2, 4, 8}

// Table prints predictions of groups of equal hosts as rows of Markdown.
func (o *Forecaster) Table(w io.Writer) error {
	first := map[string]float64{} // rate of the smallest group, by the name of a prediction
	var rows strings.Builder
	sizes, err := o.groups("table")
	if err != nil {
		return err
	}
	for _, g := range sizes {
		if g.all == nil {
			fmt.Fprintf(&rows, "| %d | %s | does not fit | | | | | | | | |\n", g.n, g.share)
		} else {
			rows.WriteString(tableRow(g.n, g.share.String(), g.all, first))
		}
	}
	_, err = fmt.Fprintf(w, "| %s, %s | | prefill 512, t/s | | prefill 2048, t/s | | decode, t/s | | computes, waits for a token, ms | received in prefill 512 (at least) | received for a token (at least) |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n%s", o.Preset+o.Model, o.Link, rows.String())
	return err
}

// sized is the predictions of a group of equal hosts, nil if it cannot hold the model.
type sized struct {
	n     int
	share parallel.Share
	all   []Prediction
}

// groups returns the predictions of groups of hosts like the one given, which the table and
// the charts share. flag is what asks for them.
func (o *Forecaster) groups(flag string) ([]sized, error) {
	if len(o.hosts) != 1 || !predictable(o.hosts) || o.Share.Shares.String() != "" || o.Stages.Given() {
		return nil, usage.Errorf("--%s needs one --host, with %s, and no shares in --share and no --stages", flag, wanted(o.hosts))
	}
	if o.sizes != nil {
		return o.sizes, nil
	}
	var sizes []sized
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
				return nil, err
			}
			g := sized{n: n, share: share}
			if plan.Fits {
				if g.all, err = one.predict(plan, group); err != nil {
					return nil, err
				}
			}
			sizes = append(sizes, g)
		}
	}
	o.sizes = sizes
	return sizes, nil
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
		fmt.Fprintf(&b, " %s |", p.received(""))
	}
	b.WriteString("\n")
	return b.String()
}
