package forecast

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// Reached is the fraction of a memory's rate that decode reaches on one and two threads
// of a CPU (docs/performance.md). Of a GPU's it is assumed; prompts on an H100 reached less.
const Reached = 0.6

// predictedPrompts are the lengths of the prompts that plan predicts the prefill of.
var predictedPrompts = []int{512, 2048}

// Prediction is what the cost model expects of hosts that were not measured.
type Prediction struct {
	What    string  `json:"what"`              // prefill, or decode: one token after N others
	N       int     `json:"n"`                 // tokens
	Seconds float64 `json:"seconds"`           // of all tokens of a prefill, of one token of decode
	Rate    float64 `json:"tokens_per_second"` // of one sequence
	// Of rank 0: seconds of ops and of waits, and bytes from other ranks.
	Compute  float64 `json:"compute_seconds"`
	Waiting  float64 `json:"waiting_seconds"`
	Received int64   `json:"received"`
	// Wait is how many seconds each exchange, and the CPU's part of each layer, waits for a GPU,
	// on the rank where that takes longest.
	Wait float64 `json:"gpu_wait_seconds,omitempty"`
	// Imbalance is what the busiest rank of a layer reads of the routed experts over the mean
	// of all ranks.
	Imbalance float64 `json:"expert_imbalance"`
	// Least is the bytes that each rank would receive if only the sums of the layers
	// travelled, in float16, by all-reduces with the fewest bytes; 0 of a prompt of which the
	// last layers leave rows out.
	Least int64 `json:"received_at_least,omitempty"`
}

// received is the bytes that a rank receives, and the bound in parentheses behind a word.
func (p Prediction) received(word string) string {
	if p.Least == 0 {
		return units.Bytes(p.Received)
	}
	return fmt.Sprintf("%s (%s%s)", units.Bytes(p.Received), word, units.Bytes(p.Least))
}

// opened returns the tracer of the model as a plan opens it.
func (o *Forecaster) opened(plan *Plan) (*calibrate.Tracer, error) {
	if o.tracer == nil {
		newTracer := calibrate.NewTracer
		if o.on == decoder.DenseOnGPU {
			newTracer = calibrate.NewTracerBesideGPU
		}
		var err error
		if o.tracer, err = newTracer(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(o.file, b, plan.open) }); err != nil {
			return nil, err
		}
	}
	return o.tracer, nil
}

// traces returns what the ranks of a plan do in a step.
func (o *Forecaster) traces(plan *Plan, p parallel.Placement, w calibrate.Work) ([]cost.Trace, error) {
	t, err := o.opened(plan)
	if err != nil {
		return nil, err
	}
	return t.Traces(context.Background(), p, w)
}

// decide makes the choice of --share auto by the rates of the hosts, and says in a line of
// the plan what is expected of the group. If a rate is unknown the experts are divided alone.
func (o *Forecaster) decide(out *Plan, group groupplan.Planned, options groupplan.Options, hosts []Host) (groupplan.Planned, error) {
	if len(hosts) == 1 {
		return group, nil
	}
	if !predictable(hosts) {
		if o.Share.Auto && !group.Settings.Placement.Staged() {
			out.Expected = fmt.Sprintf("--share auto divides %s: what is faster is not known without %s", group.Share.Divides(), wanted(hosts))
			out.Share = group.Share.String()
		}
		return group.Fallback(), nil
	}
	t, err := o.opened(out)
	if err != nil {
		return group, err
	}
	if err := o.checkReach(); err != nil {
		return group, err
	}
	options.Context = out.open.Context
	chosen, line, err := options.Decide(context.Background(), group, members(hosts), o.supposed(hosts, o.Link.network(hosts)), t)
	if err != nil {
		return group, fmt.Errorf("plan: %w", err)
	}
	if out.Expected = line; o.Share.Helper {
		return chosen, nil
	}
	if !o.Share.Auto {
		return group, nil
	}
	if group.Settings.Placement.Staged() && !o.Stages.Given() {
		out.Expected = "--share auto chose stages, because nothing else has room; " + line
	}
	out.Share = chosen.Share.String()
	return chosen, nil
}

// checkReach refuses a reach that is no fraction.
func (o *Forecaster) checkReach() error {
	if !(o.Reach > 0 && o.Reach <= 1) {
		return usage.Errorf("--reach is %v; expected a number above 0, at most 1", o.Reach)
	}
	return nil
}

// decodeWork returns the token of an answer that the plan assumes.
func (p *Plan) decodeWork() calibrate.Work {
	return calibrate.Work{Rows: 1, Pos: min(groupplan.DecodeDepth, p.open.Context-1)}
}

// reads returns what the ranks of a plan read for a token, [ranks].
func (o *Forecaster) reads(plan *Plan, ranks int) ([]read, error) {
	if plan.placement.Staged() {
		return o.stagesReads(plan, ranks)
	}
	placement := plan.placement
	if placement.Helped() { // rank 0 decodes alone
		placement = placement[:1]
	}
	traces, err := o.traces(plan, placement, plan.decodeWork())
	if err != nil {
		return nil, err
	}
	out := make([]read, ranks)
	for r, t := range traces {
		out[r] = readOf(t)
	}
	return out, nil
}

func readOf(t cost.Trace) (r read) {
	r.all, r.cpu = calibrate.Reads(t)
	return r
}

// supposed returns the costs of a group of hosts with ops that reach a fraction of their
// rates.
func (o *Forecaster) supposed(hosts []Host, n calibrate.Network) calibrate.Costs {
	all := make([]calibrate.Host, len(hosts))
	for i, h := range hosts {
		all[i] = h.supposed(o.Reach)
	}
	return calibrate.Suppose(all, n)
}

// predict predicts the steps of a plan that fits.
func (o *Forecaster) predict(plan *Plan, hosts []Host) ([]Prediction, error) {
	if err := o.checkReach(); err != nil {
		return nil, err
	}
	n := o.Link.network(hosts)
	costs := o.supposed(hosts, n)
	var all []Prediction
	for _, length := range predictedPrompts {
		if length > plan.open.Context {
			continue
		}
		until := 0 // a Mac's GPU leaves no rows of a prompt out; where a graphics card computes, rows agree
		if plan.plan.Stairs && !slices.ContainsFunc(hosts, func(h Host) bool { return h.Threads == 0 && h.card == nil }) {
			until = length
		}
		out, err := o.prefill(plan, costs, n, length, until)
		if err != nil {
			return nil, err
		}
		out.Rate = float64(length) / out.Seconds
		all = append(all, out)
	}
	w := plan.decodeWork()
	out, decode := Prediction{What: "decode", N: w.Pos}, o.step
	if plan.placement.Helped() {
		plan, costs = alone(plan, costs)
	}
	if plan.placement.Staged() {
		decode = o.passes
	}
	if err := decode(plan, costs, n, w, &out); err != nil {
		return nil, err
	}
	out.Rate = 1 / out.Seconds
	all = append(all, out)
	for i := range all {
		for _, h := range hosts {
			if most, cpu := h.devices(); len(hosts) > 1 || cpu != nil {
				all[i].Wait = max(all[i].Wait, most.Wait)
			}
		}
	}
	return all, nil
}

// known is an error if a cost is missing.
func known(e cost.Estimate) error {
	if len(e.Unknown) > 0 {
		return fmt.Errorf("plan: no cost is known for %v", e.Unknown)
	}
	return nil
}

// prefill predicts a prompt of so many tokens; until is that of calibrate.Work.
func (o *Forecaster) prefill(plan *Plan, costs calibrate.Costs, n calibrate.Network, length, until int) (Prediction, error) {
	out := Prediction{What: "prefill", N: length}
	if p := plan.placement; p.Helped() {
		if help := p[1].Help; help.Rows == 0 || length < help.Rows {
			plan, costs = alone(plan, costs)
		} else {
			both := *plan
			both.placement = groupplan.Halves(p)
			plan = &both
		}
	}
	if plan.placement.Staged() { // whose steps overlap
		err := o.passes(plan, costs, n, calibrate.Work{Rows: length}, &out)
		return out, err
	}
	for at := 0; at < length; {
		rows := min(length-at, plan.open.MaxTokens)
		if err := o.step(plan, costs, n, calibrate.Work{Rows: rows, Pos: at, Until: until}, &out); err != nil {
			return out, err
		}
		at += rows
	}
	return out, nil
}

// alone is a plan with a helper as rank 0 runs steps without it.
func alone(plan *Plan, costs calibrate.Costs) (*Plan, calibrate.Costs) {
	one := *plan
	one.placement, costs.Models = plan.placement[:1], costs.Models[:1]
	return &one, costs
}

// step adds a step to a prediction, with its rows divided if that is allowed and takes
// less.
func (o *Forecaster) step(plan *Plan, costs calibrate.Costs, n calibrate.Network, w calibrate.Work, out *Prediction) error {
	ranks := len(plan.placement)
	var best struct {
		cost.Estimate
		received int64
	}
	ways := []parallel.Placement{plan.placement.DivideRows(0)}
	if plan.placement.DividesRows() && w.Rows >= ranks {
		ways = append(ways, plan.placement.DivideRows(1))
	}
	for i, way := range ways {
		traces, err := o.traces(plan, way, w)
		if err != nil {
			return err
		}
		e, err := cost.Expect(traces, costs.Models, costs.Links)
		if err != nil {
			return err
		}
		if err := known(e); err != nil {
			return err
		}
		if i == 0 || e.Seconds <= (1-groupplan.LeastGain)*best.Seconds {
			best.Estimate, best.received = e, n.Received(traces[0], 0, ranks)
		}
	}
	out.Seconds += best.Seconds
	out.Imbalance = best.Imbalance
	out.Compute += best.Compute[0]
	out.Waiting += best.Waiting[0]
	out.Received += best.received
	if w.Until > 0 {
		return nil
	}
	out.Least += int64(2 * float64(ranks-1) / float64(ranks) * float64(plan.sums*w.Rows*plan.plan.Routed.Embd*2))
	return nil
}
