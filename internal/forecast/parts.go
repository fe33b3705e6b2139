package forecast

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/model/decoder"
)

// Part is what of a model the GPUs of all hosts could compute, with --share and --stages as given.
type Part struct {
	On      decoder.OnGPU `json:"on"`
	Backend string        `json:"backend"` // value of --backend
	Fits    bool          `json:"fits"`
	Why     string        `json:"why,omitempty"` // why it does not fit
	// In tokens per second of one sequence; 0 if a rate is unknown.
	Prefill float64 `json:"prefill,omitempty"` // of 512 tokens
	Decode  float64 `json:"decode,omitempty"`
}

// backends are the values of --backend by what graphics cards compute.
var backends = map[decoder.OnGPU]string{decoder.AllOnGPU: "vulkan", decoder.DenseOnGPU: "vulkan+cpu", decoder.NothingOnGPU: "cpu"}

// parts predicts the model with each part of it on the GPUs, nil without the rates of these. p is
// the plan with the part that is there.
func (o *Forecaster) parts(p *Plan) (all []Part, err error) {
	if slices.ContainsFunc(o.hosts, func(h Host) bool { return h.card == nil || !h.GPURates.known() }) {
		return nil, nil
	}
	for _, on := range []decoder.OnGPU{decoder.AllOnGPU, decoder.DenseOnGPU, decoder.NothingOnGPU} {
		part, plan := Part{On: on, Backend: backends[on]}, p
		if lacks := o.lacks(on); lacks > 0 {
			part.Why = fmt.Sprintf("a GPU lacks %s", units.Bytes(lacks))
			all = append(all, part)
			continue
		}
		if on != o.on {
			if plan, err = o.withPart(on); err != nil {
				return nil, err
			}
		}
		part.Fits, part.Why = plan.Fits, plan.Why
		part.Prefill, part.Decode = plan.rates()
		all = append(all, part)
	}
	return all, nil
}

// lacks is the bytes that the smallest GPU lacks for a part of the model.
func (o *Forecaster) lacks(on decoder.OnGPU) (most int64) {
	for _, h := range o.hosts {
		needs := map[decoder.OnGPU]int64{decoder.AllOnGPU: h.card.All, decoder.DenseOnGPU: h.card.Dense}[on]
		most = max(most, needs-h.card.Memory)
	}
	return most
}

// withPart is the plan with another part of the model on the GPUs, and its predictions.
func (o *Forecaster) withPart(on decoder.OnGPU) (plan *Plan, err error) {
	one := *o
	one.hosts, one.on, one.tracer = placed(o.hosts, on), on, nil
	defer func() { err = errors.Join(err, one.closeTracer()) }()
	if plan, err = one.plan(one.hosts); err == nil && plan.Fits && predictable(one.hosts) {
		plan.Predicted, err = one.predict(plan, one.hosts)
	}
	return plan, err
}

// writeParts prints the parts side by side.
func writeParts(b *strings.Builder, all []Part) {
	if len(all) == 0 {
		return
	}
	names := map[decoder.OnGPU]string{decoder.AllOnGPU: "all", decoder.DenseOnGPU: "all but the routed experts", decoder.NothingOnGPU: "nothing"}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "on the GPU\t--backend\tprefill of %d\tdecode\t\n", groupplan.RequestPrompt)
	for _, p := range all {
		if !p.Fits {
			why, _, _ := strings.Cut(p.Why, ", ") // the plan says what to do
			fmt.Fprintf(t, "%s\t%s\tdoes not fit\t\t  %s\n", names[p.On], p.Backend, why)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", names[p.On], p.Backend, rateText(p.Prefill), rateText(p.Decode))
	}
	_ = t.Flush() // to memory
}
