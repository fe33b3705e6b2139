package bench

import (
	"cmp"
	"fmt"
	"io"

	"ringmaster/parallel"
)

// ExchangeTime has the times and counts of the exchanges of one purpose and collective.
type ExchangeTime struct {
	Purpose string  `json:"purpose"` // such as attention
	Op      string  `json:"op"`      // such as all-reduce
	Count   uint64  `json:"count"`
	Compute float64 `json:"compute_s"` // since the previous exchange
	Waiting float64 `json:"waiting_s"`
	Wire    float64 `json:"wire_s"`
	Sent    uint64  `json:"sent_bytes"`
}

// add adds other, which has the same purpose and collective.
func (x *ExchangeTime) add(other ExchangeTime) {
	x.Count += other.Count
	x.Compute, x.Waiting, x.Wire = x.Compute+other.Compute, x.Waiting+other.Waiting, x.Wire+other.Wire
	x.Sent += other.Sent
}

// AddExchanges adds the exchanges of list to those of sum and returns the sum, in the
// order in which they first occur.
func AddExchanges(sum, list []ExchangeTime) []ExchangeTime {
next:
	for _, x := range list {
		for i := range sum {
			if sum[i].Purpose == x.Purpose && sum[i].Op == x.Op {
				sum[i].add(x)
				continue next
			}
		}
		sum = append(sum, x)
	}
	return sum
}

// exchangesBetween returns the exchanges of each layer [layers+1] between two reports;
// the last are the output head's.
func exchangesBetween(before, after [][]parallel.Exchange) [][]ExchangeTime {
	out := make([][]ExchangeTime, len(after))
	for i, list := range after {
		for _, x := range list {
			if i < len(before) {
				if was := parallel.Find(before[i], x.Purpose, x.Op); was != nil {
					x.Sub(*was)
				}
			}
			if x.Count > 0 {
				out[i] = append(out[i], ExchangeTime{x.Purpose, x.Op, x.Count, x.Compute.Seconds(), x.Waiting.Seconds(), x.Wire.Seconds(), x.Sent})
			}
		}
	}
	return out
}

// printExchanges writes a line for each; before fills the columns of rank and layer.
func printExchanges(w io.Writer, before string, list []ExchangeTime) {
	for _, x := range list {
		per := 1e6 * (x.Waiting + x.Wire) / float64(cmp.Or(x.Count, 1))
		fmt.Fprintf(w, "%s%s, %s\t\t%s\t%s\t%s\t%d\t%.0f us\t%.1f MB\t\t\n", before, x.Purpose, x.Op,
			milliseconds(x.Compute), milliseconds(x.Waiting), milliseconds(x.Wire), x.Count, per, float64(x.Sent)/1e6)
	}
}

func milliseconds(s float64) string { return fmt.Sprintf("%.1f ms", 1e3*s) }
