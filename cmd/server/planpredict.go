package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"ringmaster/gguf"
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

// reached is the part of a memory's rate that decode reaches on one and two threads of a
// CPU (docs/performance.md). What a GPU reaches has not been measured.
const reached = 0.6

// predictedPrompts are the lengths of the prompts of which plan predicts the prefill.
var predictedPrompts = []int{512, 2048}

// prediction is what the cost model expects of hosts that nobody has measured.
type prediction struct {
	What    string  `json:"what"`              // prefill, or decode: one token after N others
	N       int     `json:"n"`                 // tokens
	Seconds float64 `json:"seconds"`           // of all tokens of a prefill, of one token of decode
	Rate    float64 `json:"tokens_per_second"` // of one sequence
	// Of rank 0: seconds of ops and of waits, and bytes from other ranks.
	Compute  float64 `json:"compute_seconds"`
	Waiting  float64 `json:"waiting_seconds"`
	Received int64   `json:"received"`
	// Micro says that some steps are run as two micro-batches.
	Micro bool `json:"micro_batches,omitempty"`
	// Wait is the seconds that each exchange waits for a GPU.
	Wait float64 `json:"gpu_wait_seconds,omitempty"`
	// Least is the bytes that each rank would receive if nothing but the sums of the
	// layers travelled, in float16, by all-reduces with the fewest bytes.
	Least int64 `json:"received_at_least"`
}

// traces lists what the ranks of a plan do in a step.
func (o *planOptions) traces(f *gguf.File, plan *planned, p parallel.Placement, w calibrate.Work) ([]cost.Trace, error) {
	if o.tracer == nil {
		var err error
		if o.tracer, err = calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(f, b, plan.open) }); err != nil {
			return nil, err
		}
	}
	return o.tracer.Traces(context.Background(), p, w)
}

// close frees the tracer.
func (o *planOptions) close() error {
	if o.tracer == nil {
		return nil
	}
	return o.tracer.Close()
}

// decodeWork is the token of an answer that plan is about.
func (p *planned) decodeWork() calibrate.Work {
	return calibrate.Work{Rows: 1, Pos: min(groupplan.DecodeDepth, p.open.Context-1)}
}

// reads is the bytes of weights that the ranks of a plan read for a token, [ranks].
func (o *planOptions) reads(f *gguf.File, plan *planned, ranks int) ([]int64, error) {
	traces, err := o.traces(f, plan, plan.placement, plan.decodeWork())
	if err != nil {
		return nil, err
	}
	out := make([]int64, ranks)
	for r, t := range traces {
		out[r] = calibrate.Reads(t)
	}
	return out, nil
}

// predicts reports whether the rates of all hosts are known.
func predicts(hosts []planHost) bool {
	for _, h := range hosts {
		if h.Rate == 0 || h.Compute == 0 {
			return false
		}
	}
	return true
}

// supposed are the costs of a group of hosts, whose ops reach a part of their rates.
func (o *planOptions) supposed(hosts []planHost, n calibrate.Network) calibrate.Costs {
	all := make([]calibrate.Host, len(hosts))
	for i, h := range hosts {
		all[i] = calibrate.Host{Memory: o.reach * h.Rate, Compute: o.reach * h.Compute, Op: h.Op}
	}
	return calibrate.Suppose(all, n)
}

// predict predicts a plan that fits.
func (o *planOptions) predict(f *gguf.File, plan *planned, hosts []planHost, link planLink) ([]prediction, error) {
	if !(o.reach > 0 && o.reach <= 1) {
		return nil, usage.Errorf("--reach is %v; expected a number above 0, at most 1", o.reach)
	}
	n := link.network(hosts)
	costs := o.supposed(hosts, n)
	var all []prediction
	for _, length := range predictedPrompts {
		if length > plan.open.Context {
			continue
		}
		out := prediction{What: "prefill", N: length}
		for at := 0; at < length; {
			rows := min(length-at, plan.open.MaxTokens)
			if err := o.step(f, plan, costs, n, calibrate.Work{Rows: rows, Pos: at}, &out); err != nil {
				return nil, err
			}
			at += rows
		}
		out.Rate = float64(length) / out.Seconds
		all = append(all, out)
	}
	w := plan.decodeWork()
	out := prediction{What: "decode", N: w.Pos}
	if err := o.step(f, plan, costs, n, w, &out); err != nil {
		return nil, err
	}
	out.Rate = 1 / out.Seconds
	return append(all, out), nil
}

// step adds a step to a prediction, with its rows divided if that is allowed and takes
// less, and with --micro-batches auto in two micro-batches if that does.
func (o *planOptions) step(f *gguf.File, plan *planned, costs calibrate.Costs, n calibrate.Network, w calibrate.Work, out *prediction) error {
	ranks := len(plan.placement)
	var best struct {
		cost.Estimate
		way      parallel.Placement
		received int64
	}
	try := func(way parallel.Placement) (cost.Estimate, error) {
		traces, err := o.traces(f, plan, way, w)
		if err != nil {
			return cost.Estimate{}, err
		}
		e, err := cost.Expect(traces, costs.Models, costs.Links)
		if err != nil {
			return e, err
		}
		if len(e.Unknown) > 0 {
			return e, fmt.Errorf("plan: nothing is supposed of the cost of %v", e.Unknown)
		}
		if best.way == nil || e.Seconds <= (1-groupplan.LeastGain)*best.Seconds {
			best.Estimate, best.way, best.received = e, way, n.Received(traces[0], 0, ranks)
		}
		return e, nil
	}
	ways := []parallel.Placement{plan.placement.DivideRows(0)}
	if plan.placement.DividesRows() && w.Rows >= ranks {
		ways = append(ways, plan.placement.DivideRows(1))
	}
	var inTwo []parallel.Placement
	for _, way := range ways {
		e, err := try(way)
		if err != nil {
			return err
		}
		if micro := way.MicroBatches(1); o.micro.Auto && groupplan.MayGain(e) && micro.FirstRows(w.Rows, 1) > 0 {
			inTwo = append(inTwo, micro)
		}
	}
	for _, way := range inTwo {
		if _, err := try(way); err != nil {
			return err
		}
	}
	out.Micro = out.Micro || best.way[0].Micro > 0
	if ranks > 1 {
		out.Wait = n.Wait
	}
	out.Seconds += best.Seconds
	out.Compute += best.Compute[0]
	out.Waiting += best.Waiting[0]
	out.Received += best.received
	out.Least += int64(2 * float64(ranks-1) / float64(ranks) * float64(plan.sums*w.Rows*plan.plan.Routed.Embd*2))
	return nil
}

// writePredictions prints predictions for people.
func writePredictions(b *strings.Builder, all []prediction, reach float64) {
	if len(all) == 0 {
		b.WriteString("no prediction without the rate of each memory and the speed of each host (--host 64GiB,40GB/s,1TFLOP/s)\n")
		return
	}
	fmt.Fprintf(b, "predicted by the cost model, from rates that nobody has measured and of which ops are taken to reach %.2g; ringmaster bench measures:\n", reach)
	for _, p := range all {
		name := fmt.Sprintf("prefill of %d tokens", p.N)
		if p.What == "decode" {
			name = fmt.Sprintf("decode after %d tokens", p.N)
		}
		if p.Micro {
			name += ", in micro-batches"
		}
		fmt.Fprintf(b, "  %s: %.1f tokens/s; rank 0 computes %.2f ms and waits %.2f ms, and receives %s (at least %s)\n",
			name, p.Rate, 1e3*p.Compute, 1e3*p.Waiting, units.Bytes(p.Received), units.Bytes(p.Least))
	}
	if wait := all[0].Wait; wait > 0 {
		fmt.Fprintf(b, "  each exchange waits %.0f us until the CPU sees that the GPU is done (--host ...,wait=TIME); not measured here\n", 1e6*wait)
	}
}

// tableRanks are the sizes of the groups of a table.
var tableRanks = []int{1, 2, 4, 8}

// table prints predictions of groups of hosts of one kind as rows of Markdown.
func (o *planOptions) table(w io.Writer, f *gguf.File, hosts []planHost, link planLink) error {
	if len(hosts) != 1 || !predicts(hosts) || o.shares.String() != "" {
		return usage.Errorf("--table needs one --host, with the rate of its memory and its speed, such as 512GiB,800GB/s,28TFLOP/s, and no --shares")
	}
	first := map[string]float64{} // rate of the smallest group, by the name of a prediction
	fmt.Fprintf(w, "| %s, %s | | prefill 512, t/s | | prefill 2048, t/s | | decode, t/s | | computes, waits for a token, ms | received in prefill 512 (at least) | received for a token (at least) |\n", o.preset+o.model, o.link)
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range tableRanks {
		group := slices.Repeat(hosts, n)
		for _, share := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
			if n == 1 && share == parallel.ShareAll {
				continue // the same
			}
			one := *o
			one.share = share
			plan, err := one.plan(f, group, link)
			o.tracer = one.tracer
			if err != nil {
				return err
			}
			if !plan.Fits {
				fmt.Fprintf(w, "| %d | %s | does not fit | | | | | | | | |\n", n, share)
				continue
			}
			all, err := one.predict(f, plan, group, link)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(w, tableRow(n, share.String(), all, first)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableRow is a row of a table; first has the rates of its first row, which are added if
// this is it.
func tableRow(ranks int, share string, all []prediction, first map[string]float64) string {
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
		fmt.Fprintf(&b, " %s | %.2f |", tableNumber(p.Rate), p.Rate/first[key])
	}
	decode := all[len(all)-1]
	fmt.Fprintf(&b, " %.2f, %.2f |", 1e3*decode.Compute, 1e3*decode.Waiting)
	for _, p := range []prediction{all[0], decode} {
		fmt.Fprintf(&b, " %s (%s) |", units.Bytes(p.Received), units.Bytes(p.Least))
	}
	b.WriteString("\n")
	return b.String()
}

// tableNumber is a rate in a table.
func tableNumber(rate float64) string { return fmt.Sprintf("%.1f", rate) }
