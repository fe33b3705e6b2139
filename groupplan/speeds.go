package groupplan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
	"ringmaster/parallel/cost"
)

const (
	// unequal is the least ratio of the speeds of two ranks that counts as a difference,
	// beyond the errors of both measurements: calibrations of one host differ by as much if
	// other programs run.
	unequal = 1.25
	// speedSteps is the greatest measured speed. Few steps, so that equal hosts have equal
	// ones.
	speedSteps = 16
)

// measuredSpeeds are the speeds at which ranks compute the routed experts of a token, by
// the lines of their ops: all 1 if the ranks are alike, nil if a line is missing.
func measuredSpeeds(plan decoder.Plan, models []cost.Model) []int {
	seconds, off := make([]float64, len(models)), 1.0 // off is the ratio that the noise of one rank may explain
	for r, m := range models {
		var wrong float64
		if seconds[r], wrong = expertSeconds(plan, m); seconds[r] <= 0 {
			return nil
		}
		off = max(off, 1+wrong)
	}
	if len(seconds) == 0 {
		return nil
	}
	if slices.Max(seconds) < unequal*off*off*slices.Min(seconds) {
		return slices.Repeat([]int{1}, len(seconds))
	}
	out, least := make([]int, len(models)), slices.Min(seconds)
	for r, s := range seconds {
		out[r] = min(max(int(math.Round(speedSteps*least/s)), 1), assign.MaxSpeed)
	}
	return out
}

// speedsLine says at which speeds members compute experts, "" if they are alike or unknown.
func speedsLine(members []cluster.Hello, speeds []int) string {
	if speeds == nil || slices.Max(speeds) == slices.Min(speeds) {
		return ""
	}
	var all []string
	for r, m := range members {
		all = append(all, fmt.Sprintf("%s %d", m.Name(), speeds[r]))
	}
	return fmt.Sprintf("measured speeds of routed experts, of %d for the fastest: %s; copies are shared accordingly\n", speedSteps, strings.Join(all, ", "))
}

// expertSeconds is what a row of an expert takes by the lines of a rank, the mean of the
// types of weights that it has, and the relative error to expect; 0 if unknown.
func expertSeconds(plan decoder.Plan, m cost.Model) (seconds, wrong float64) {
	bytes := float64(plan.OneExpert()) / float64(max(len(plan.ExpertLayers()), 1))
	work := float64(plan.Routed.Embd) * float64(plan.Routed.FF)
	wrong = m.Spread
	for _, op := range []struct {
		name     string
		matrices float64
	}{{"ExpertGateUp ", 2}, {"ExpertDown ", 1}} {
		took, n := 0.0, 0.0
		for kind, line := range m.Ops {
			if strings.HasPrefix(kind, op.name) {
				took += line.Seconds(bytes*op.matrices/3, work*op.matrices)
				wrong = max(wrong, line.Error)
				n++
			}
		}
		switch {
		case n > 0:
			seconds += took / n
		case m.CPU != nil: // a GPU leaves the experts to it
			seconds += m.CPU.Seconds(bytes*op.matrices/3, work*op.matrices)
		case m.Other != nil:
			seconds += m.Other.Seconds(bytes*op.matrices/3, work*op.matrices)
		default:
			return 0, 0
		}
	}
	return seconds, wrong
}

// speeds are the measured speeds of the ranks of a plan, nil with Sum: they decide which rank
// adds which terms, hence last bits, and differ from epoch to epoch.
func (p Planned) speeds(models []cost.Model) []int {
	if p.Settings.Reduce == parallel.Sum {
		return nil
	}
	return measuredSpeeds(p.Model, models)
}

// withSpeeds is the plan with the measured speeds of its ranks.
func (p Planned) withSpeeds(models []cost.Model) Planned {
	speeds := p.speeds(models)
	p.Settings.Placement = p.Settings.Placement.WithSpeeds(speeds)
	p.Settings.Alternatives = slices.Clone(p.Settings.Alternatives)
	for i, x := range p.Settings.Alternatives {
		if !x.Staged() { // nothing is assigned among stages
			p.Settings.Alternatives[i] = x.WithSpeeds(speeds)
		}
	}
	return p
}
