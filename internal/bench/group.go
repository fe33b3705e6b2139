package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"ringmaster/parallel"
	"ringmaster/replica"
)

// RankTimes has the times and counts of one rank, summed over the repetitions of a
// measurement.
type RankTimes struct {
	Rank      int     `json:"rank"`
	Seconds   float64 `json:"seconds"` // of whole steps
	Compute   float64 `json:"compute_s"`
	Waiting   float64 `json:"waiting_s"`
	Wire      float64 `json:"wire_s"`
	Sent      uint64  `json:"sent_bytes"`
	Exchanges uint64  `json:"exchanges"`
	Overflows uint64  `json:"overflows"`
	// Routed experts of this rank, and what the busiest rank of each step and layer took
	// over the mean of all: of rows, each once for each of its experts, and of bytes.
	ExpertRows     uint64  `json:"expert_rows"`
	ExpertBytes    uint64  `json:"expert_bytes"`
	RowImbalance   float64 `json:"row_imbalance"`
	BytesImbalance float64 `json:"bytes_imbalance"`
	routed         parallel.Routed
	Layers         []LayerTime `json:"layers"`
	// By has the exchanges of the whole model, by purpose and collective.
	By []ExchangeTime `json:"by_exchange"`
	// Head has the exchanges of the output head, which belong to no layer.
	Head []ExchangeTime `json:"head"`
}

// LayerTime has the times of one layer, in seconds.
type LayerTime struct {
	Compute float64 `json:"compute_s"`
	Waiting float64 `json:"waiting_s"`
	Wire    float64 `json:"wire_s"`
	// By has the exchanges of the layer, by purpose and collective.
	By []ExchangeTime `json:"by_exchange"`
}

// reportLimit bounds how long bench waits for the statistics of the followers.
const reportLimit = 5 * time.Second

// reports returns the statistics of all ranks, nil without a group.
func (b *bench) reports(ctx context.Context) ([]replica.Report, error) {
	if b.t.Group == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	return b.t.Group.Reports(ctx)
}

// between returns the difference of two reports for each rank.
func between(before, after []replica.Report) []RankTimes {
	out := make([]RankTimes, len(after))
	for r := range after {
		sum := after[r].Total().Since(before[r].Total())
		t := RankTimes{Rank: r, Seconds: (after[r].Time - before[r].Time).Seconds(),
			Compute: sum.Compute.Seconds(), Waiting: sum.Waiting.Seconds(), Wire: sum.Wire.Seconds(),
			Sent: sum.Sent, Exchanges: sum.Exchanges, Overflows: sum.Overflows}
		t.addRouted(sum.Routed, len(after))
		for i, l := range after[r].Layers {
			var was parallel.LayerStats
			if i < len(before[r].Layers) {
				was = before[r].Layers[i]
			}
			d := l.Since(was)
			t.Layers = append(t.Layers, LayerTime{Compute: d.Compute.Seconds(), Waiting: d.Waiting.Seconds(), Wire: d.Wire.Seconds()})
		}
		for i, list := range exchangesBetween(before[r].Exchanges, after[r].Exchanges) {
			t.By = AddExchanges(t.By, list)
			if i < len(t.Layers) {
				t.Layers[i].By = list
			} else {
				t.Head = AddExchanges(t.Head, list)
			}
		}
		out[r] = t
	}
	return out
}

// addRouted adds the counts of routed experts of a group of so many ranks.
func (t *RankTimes) addRouted(r parallel.Routed, ranks int) {
	t.routed.Add(r)
	t.ExpertRows, t.ExpertBytes = t.routed.Rows, t.routed.Bytes
	t.RowImbalance, t.BytesImbalance = t.routed.Imbalance(ranks)
}

// addTimes adds b to a and returns the sum; a may be nil.
func addTimes(a, b []RankTimes) []RankTimes {
	if a == nil {
		return b
	}
	for r := range b {
		x, y := &a[r], b[r]
		x.Seconds, x.Compute, x.Waiting, x.Wire = x.Seconds+y.Seconds, x.Compute+y.Compute, x.Waiting+y.Waiting, x.Wire+y.Wire
		x.Sent, x.Exchanges, x.Overflows = x.Sent+y.Sent, x.Exchanges+y.Exchanges, x.Overflows+y.Overflows
		x.addRouted(y.routed, len(b))
		for i, l := range y.Layers {
			x.Layers[i].Compute += l.Compute
			x.Layers[i].Waiting += l.Waiting
			x.Layers[i].Wire += l.Wire
			x.Layers[i].By = AddExchanges(x.Layers[i].By, l.By)
		}
		x.By, x.Head = AddExchanges(x.By, y.By), AddExchanges(x.Head, y.Head)
	}
	return a
}

// printRanks writes the times of the ranks as a table, with a line for each kind of
// exchange and the expectation of so many repetitions, if there is one; with layers it
// includes the same for each layer.
func printRanks(w io.Writer, ranks []RankTimes, expected []ExpectedTimes, repetitions int, layers bool) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rank\tlayer\tsteps\tcompute\twait\twire\texchanges\tper exchange\tsent\toverflows\t")
	ms := milliseconds
	for _, r := range ranks {
		per := 0.0
		if r.Exchanges > 0 {
			per = 1e6 * (r.Waiting + r.Wire) / float64(r.Exchanges)
		}
		fmt.Fprintf(t, "%d\tall\t%s\t%s\t%s\t%s\t%d\t%.0f us\t%.1f MB\t%d\t\n", r.Rank, ms(r.Seconds), ms(r.Compute), ms(r.Waiting), ms(r.Wire),
			r.Exchanges, per, float64(r.Sent)/1e6, r.Overflows)
		if r.Rank < len(expected) {
			e, n := expected[r.Rank], float64(repetitions)
			fmt.Fprintf(t, "\texpected\t\t%s\t%s\twith wait\t\t\t\t\t\n", ms(n*e.Compute), ms(n*e.Waiting))
		}
		printExchanges(t, "\t", r.By)
		if !layers {
			continue
		}
		for i, l := range r.Layers {
			fmt.Fprintf(t, "%d\t%d\t\t%s\t%s\t%s\t\t\t\t\t\n", r.Rank, i, ms(l.Compute), ms(l.Waiting), ms(l.Wire))
			printExchanges(t, "\t", l.By)
		}
		printExchanges(t, fmt.Sprintf("%d\t", r.Rank), r.Head)
	}
	if err := t.Flush(); err != nil || len(ranks) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "         routed experts: the busiest rank of a step has %.2f times the mean of the rows and %.2f times the mean of the bytes\n",
		ranks[0].RowImbalance, ranks[0].BytesImbalance)
	return err
}
