package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ringmaster/gguf"
	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
	"ringmaster/kernels"
	"ringmaster/kernels/profile"
)

// steps writes what a step of a measurement did: counts and waits of a GPU, the weights by
// type, and each op.
func (r *reporter) steps(m *Measurement) {
	r.line("\n## A step of %s after %d", m.title(), m.Depth)
	if r.b.t.GPU != nil {
		r.device(m)
	}
	r.weights(m)
	r.line("\nEach op by itself, in a repetition after the measured ones. Waiting after each makes that one slower.\n\n```")
	if r.err == nil {
		r.err = profile.Write(r.w, m.profiled, m.profileTime, m.steps())
	}
	r.line("```")
}

// device is what a step asked of the GPU, where ops were not measured one by one.
func (r *reporter) device(m *Measurement) {
	steps := float64(m.steps() * len(m.Seconds))
	c := m.onDevice.counts
	each := func(n int) string { return fmt.Sprintf("%.4g", float64(n)/steps) }
	ms := func(s float64) string { return fmt.Sprintf("%.3f ms", 1e3*s) }
	sum := 0.0
	for _, s := range m.Seconds {
		sum += s
	}
	r.table("of one step", "", "expected")
	none := expectation{}
	r.row("dispatches", each(c.Dispatches), none.text(0, nil))
	stages := float64(c.Stages) / steps
	cost := "no expectation"
	if r.mac != nil {
		cost = fmt.Sprintf("%s to %s of the step (%s)", ms(stages*stagePrice.least), ms(stages*stagePrice.most), sourceOf)
	}
	r.row("stages", each(c.Stages), cost)
	r.row("stages that read no weights", each(c.Light), none.text(0, nil))
	r.row("command buffers", each(c.Buffers), none.text(0, nil))
	cost = "no expectation"
	if r.mac != nil {
		cost = fmt.Sprintf("at most %s to %s each, beside the work (%s)", ms(waitPrice.least), ms(waitPrice.most), sourceOf)
	}
	r.row("waits for the GPU", each(c.Waits), cost)
	r.row("waits that slept", each(c.Waiting.Slept), none.text(0, nil))
	r.row("time of the waits", ms(c.Waiting.Took.Seconds()/steps), ms(c.Waiting.Expected.Seconds()/steps)+" by the waits before")
	r.row("time of the step", ms(sum/steps), none.text(0, nil))
	if m.onDevice.known {
		r.row("time on the GPU", ms(m.onDevice.time.Seconds()/steps), fmt.Sprintf("%.0f %% of the step", 100*m.onDevice.time.Seconds()/sum))
	} else {
		r.row("time on the GPU", "this backend does not measure it", none.text(0, nil))
	}
}

// typed is what the ops on weights of some types did.
type typed struct {
	ops, calls int
	bytes      int64
	time       time.Duration
}

// typesOf are the types in the name of an op, each once, "" for an op without weights.
func typesOf(name string) string {
	var types []string
	_, weights, ok := strings.Cut(name, " ")
	for weight := range strings.SplitSeq(weights, ", ") {
		at := strings.LastIndexByte(weight, ':')
		if !ok || at < 0 {
			return ""
		}
		if t := weight[at+1:]; !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return strings.Join(types, "+")
}

// weights is the bandwidth that ops reach, by the types of their weights.
func (r *reporter) weights(m *Measurement) {
	byType := map[string]typed{}
	for _, o := range m.profiled {
		types := typesOf(o.Name)
		if types == "" || o.Weights == 0 {
			continue
		}
		x := byType[types]
		x.ops, x.calls, x.bytes, x.time = x.ops+1, x.calls+o.Calls, x.bytes+o.Weights, x.time+cmp.Or(o.GPU, o.Time)
		byType[types] = x
	}
	if len(byType) == 0 {
		return
	}
	clock := "the host's clock, with its waits"
	if m.onDevice.known {
		clock = "the GPU's clock"
	}
	r.line("\nWeights that ops read, by %s:", clock)
	r.table("types", "ops of a step", "MB of a step", "ms", "GB/s", "expected")
	steps := float64(m.steps())
	for _, types := range slices.SortedFunc(maps.Keys(byType), func(a, b string) int {
		return cmp.Or(cmp.Compare(byType[b].bytes, byType[a].bytes), strings.Compare(a, b))
	}) {
		x, e := byType[types], expectation{source: sourceOf}
		rate := float64(x.bytes) / max(x.time.Seconds(), 1e-9)
		if r.mac != nil && m.What == "decode" && m.Sequences == 1 {
			e.span = span{r.mac.sustained * productShare.least, r.mac.sustained * productShare.most}
		}
		gbs := func(v float64) string { return fmt.Sprintf("%.1f", v/1e9) }
		r.row(types, fmt.Sprintf("%.4g", float64(x.calls)/steps), fmt.Sprintf("%.2f", float64(x.bytes)/1e6/steps),
			fmt.Sprintf("%.3f", 1e3*x.time.Seconds()/steps), gbs(rate), e.text(rate, gbs))
	}
	if m.BytesPerToken > 0 {
		r.line("\nA token reads %s of weights.", units.Bytes(m.BytesPerToken))
	}
	if m.StreamGBs > 0 {
		r.line("\nThe threads read memory at %.1f GB/s at best.", m.StreamGBs)
	}
}

// types compares all types of weights on the device with the CPU, also those that the model
// does not have, but where drivers take minutes to compile the kernels of some.
func (r *reporter) types() {
	if r.b.t.GPU == nil {
		return
	}
	r.line("\n## Types of weights\n")
	if r.b.t.GPU.Info().Packed {
		r.line("* The device computes those of the model as the CPU does; others were not tried.")
		return
	}
	right := 0
	for t := gguf.Type(0); t <= gguf.LastType; t++ {
		if !t.Weights() || !r.b.t.GPU.CanCompute(t) {
			continue
		}
		one := []gguf.Type{t}
		if err := r.b.t.GPU.Prepare(kernels.Uses{Rows: one, Products: one, Experts: one}); err != nil {
			r.line("* %s", safetext.Line(err.Error(), safetext.Evidence))
			continue
		}
		right++
	}
	r.line("* The device computes %s as the CPU does.", units.Count(right, "type"))
}
