package forecast

import (
	"context"
	"slices"
	"strconv"

	"ringmaster/groupplan"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// candidates are the stages that are compared with --share: those of --stages, or a stage for
// each host and, where islands are linked among each other, one for each island.
func (o *Forecaster) candidates() []groupplan.Stages {
	switch {
	case o.Stages.Given():
		return []groupplan.Stages{o.Stages}
	case o.Share.Shares.Memory: // stages need numbers
		return nil
	}
	list := []groupplan.Stages{{Count: len(o.hosts)}}
	if o.Link.Inside == nil {
		return list
	}
	var ranks []int
	for i, h := range o.hosts {
		if i == 0 || h.island != o.hosts[i-1].island {
			ranks = append(ranks, 0)
		}
		ranks[len(ranks)-1]++
	}
	if len(ranks) > 1 && len(ranks) < len(o.hosts) {
		list = append(list, groupplan.Stages{Count: len(ranks), Ranks: ranks})
	}
	return list
}

// stagesFlag is the value of --stages for a placement: their number if that gives them the
// same ranks, else all of them.
func stagesFlag(p parallel.Placement) string {
	s := groupplan.StagesOf(p)
	if s.Ranks == nil || slices.Max(s.Ranks) == slices.Min(s.Ranks) {
		return strconv.Itoa(s.Count)
	}
	return s.String()
}

// stagesBounds are the bounds of a plan in stages: a token passes through one after the other,
// and between two of them a row.
func stagesBounds(p decoder.Plan, placement parallel.Placement, reads []read, hosts []Host, n calibrate.Network) Bounds {
	b, seconds, slowest := Bounds{Bytes: bytesOf(reads), Wire: p.CarriedRow}, 0.0, 0.0
	for i, stage := range placement.Stages() {
		longest := 0.0
		for r := stage.Ranks.Start; r < stage.Ranks.End; r++ {
			t := hosts[r].seconds(reads[r])
			if t == 0 {
				return b
			}
			if longest = max(longest, t); t > slowest {
				slowest, b.Slow = t, r
			}
		}
		if seconds += longest; i > 0 {
			seconds += float64(p.CarriedRow) / n.Rate
		}
	}
	b.Decode = 1 / seconds
	return b
}

// stagesReads is reads of a plan in stages.
func (o *Forecaster) stagesReads(plan *Plan, ranks int) ([]read, error) {
	t, err := o.opened(plan)
	if err != nil {
		return nil, err
	}
	hosts := slices.Repeat([]Host{{Rates: Rates{Rate: 1, Compute: 1}}}, ranks) // traces do not depend on rates
	pipeline, err := t.Pipeline(context.Background(), plan.placement, o.supposed(hosts, calibrate.Network{Rate: 1, Hops: 1}), plan.decodeWork())
	if err != nil {
		return nil, err
	}
	var out []read
	for _, s := range pipeline.Stages {
		for r, trace := range s.Pieces[0] {
			n := readOf(trace)
			if s.Head != nil {
				head := readOf(s.Head[r])
				n.all, n.cpu = n.all+head.all, n.cpu+head.cpu
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// passes adds a prompt or a token that passes through the stages of a plan to a prediction.
func (o *Forecaster) passes(plan *Plan, costs calibrate.Costs, n calibrate.Network, w calibrate.Work, out *Prediction) error {
	t, err := o.opened(plan)
	if err != nil {
		return err
	}
	pipeline, err := t.Pipeline(context.Background(), plan.placement, costs, w)
	if err != nil {
		return err
	}
	e, err := pipeline.Expect()
	if err != nil {
		return err
	}
	if err := known(e); err != nil {
		return err
	}
	first := pipeline.Stages[0]
	out.Received = int64(pipeline.Final)
	for _, piece := range first.Pieces {
		out.Received += n.Received(piece[0], 0, len(first.Models))
	}
	out.Seconds, out.Imbalance, out.Compute, out.Waiting, out.Least = e.Seconds, e.Imbalance, e.Compute[0], e.Waiting[0], out.Received
	return nil
}
