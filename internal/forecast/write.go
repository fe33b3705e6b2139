package forecast

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"ringmaster/internal/units"
	"ringmaster/model/decoder"
)

// Write prints an outcome for people. reach is Options.Reach.
func (p Outcome) Write(w io.Writer, reach float64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of weights, at most %d tokens of context\n", p.Model, units.Bytes(p.Weights), p.Limit)
	if p.Tables > 0 {
		fmt.Fprintf(&b, "tables of %s stay on each rank's disk: a token reads %s of them, which the disk must deliver for every token of a prompt and of an answer\n",
			units.Bytes(p.Tables), units.Bytes(p.Reads))
	}
	if p.Fits {
		on, divided := "on each rank", "--share "+p.Share
		if p.Stages != "" {
			on, divided = "on rank 0, of its layers", "--stages "+p.Stages+" with --share "+p.Share+" inside"
		}
		fmt.Fprintf(&b, "it fits: context of %d tokens, one such sequence takes %s; KV caches of all together at most %s %s; %s\n",
			p.Context, units.Bytes(p.Sequence), units.Bytes(p.Caches), on, divided)
		t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', tabwriter.AlignRight)
		layers := func(text string) string { // a column of plans in stages
			if p.Stages == "" {
				return ""
			}
			return text + "\t"
		}
		fmt.Fprintf(t, "rank\tmemory\toffers\tneeds\tleft\t%sexperts\tcopies\tread for a token\t  limit\t\n", layers("layers"))
		for i, r := range p.Ranks {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s%d-%d\t%s\t%s\t  %s\t\n", i, units.Bytes(r.Memory), units.Bytes(r.Offer), units.Bytes(r.Resident), units.Bytes(r.Free),
				layers(fmt.Sprintf("%d-%d", r.Layers.Start, r.Layers.End-1)), r.Experts.Start, r.Experts.End-1, units.Bytes(r.Copies), units.Bytes(p.Bounds.Bytes[i]), r.Limit)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if p.Bounds.Decode > 0 {
			by := fmt.Sprintf("by the memory of rank %d and the %s that each rank receives", p.Bounds.Slow, units.Bytes(p.Bounds.Wire))
			if p.Stages != "" {
				by = fmt.Sprintf("by the memories of all stages one after the other and the %s that each receives", units.Bytes(p.Bounds.Wire))
			}
			fmt.Fprintf(&b, "decode of one sequence: at most %.1f tokens/s, %s; latency, arithmetic and KV cache are not counted\n", p.Bounds.Decode, by)
		} else if !onCards(p.GPUs) {
			b.WriteString("decode: no bound without the rates of all memories (--host 64GiB,40GB/s; ringmaster doctor measures them)\n")
		}
		if p.Expected != "" {
			fmt.Fprintf(&b, "%s\n", p.Expected)
		}
		p.writePredictions(&b, reach)
	} else {
		fmt.Fprintf(&b, "it does not fit: %s\n", p.Why)
	}
	writeCards(&b, p.GPUs)
	writeParts(&b, p.Parts)
	writeAlternatives(&b, p.Alternatives, p.Recommended)
	if p.Note != "" {
		fmt.Fprintf(&b, "%s\n", p.Note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writePredictions prints the predictions of a plan that fits for people.
func (p Outcome) writePredictions(b *strings.Builder, reach float64) {
	all := p.Predicted
	if len(all) == 0 {
		hosts := []Host{p.Ranks[0].Host}
		fmt.Fprintf(b, "no prediction without %s\n", wanted(hosts))
		return
	}
	fmt.Fprintf(b, "predicted by the cost model, from nominal rates, assuming that ops reach %.0f %% of them; ringmaster bench measures:\n", 100*reach)
	for _, p := range all {
		name := fmt.Sprintf("prefill of %d tokens", p.N)
		if p.What == "decode" {
			name = fmt.Sprintf("decode after %d tokens", p.N)
		}
		fmt.Fprintf(b, "  %s: %.1f tokens/s; rank 0 computes %.2f ms and waits %.2f ms, and receives %s; the busiest rank reads %.2f times the mean of the experts\n",
			name, p.Rate, 1e3*p.Compute, 1e3*p.Waiting, p.received("at least "), p.Imbalance)
	}
	if wait := all[0].Wait; wait > 0 {
		what := "each exchange waits"
		if len(p.GPUs) > 0 && p.GPUs[0].On == decoder.DenseOnGPU {
			what = "each exchange and the routed experts of each layer wait"
		}
		fmt.Fprintf(b, "  %s %.0f us until the CPU sees that the GPU is done (--host ...,wait=TIME)", what, 1e6*wait)
		if len(p.GPUs) == 0 {
			b.WriteString("; not measured here")
		}
		b.WriteString("\n")
	}
}
