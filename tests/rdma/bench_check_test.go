//go:build cgo && (linux || darwin) && rm_unchecked

package rdma

import (
	"testing"

	"ringmaster/distributed/rdma"
)

// BenchmarkCheck runs sums of 16 KiB on 2 ranks with the check of completions and
// without it, in turns, and compares the medians of the fastest of each turn.
// It wants the tag rm_unchecked.
func BenchmarkCheck(b *testing.B) {
	x := group(b, meshOf(2, 1, ""), 2, nil)
	var with, without []float64
	b.ResetTimer()
	for range max(b.N, 2) {
		for _, off := range []bool{false, true} {
			rdma.Unchecked.Store(off)
			fastest := float64(timed(b, x, 16<<10, 200).fastest.Nanoseconds())
			if off {
				without = append(without, fastest)
			} else {
				with = append(with, fastest)
			}
		}
	}
	rdma.Unchecked.Store(false)
	b.ReportMetric(median(with), "ns/checked")
	b.ReportMetric(median(without), "ns/unchecked")
	b.ReportMetric((median(with)/median(without)-1)*100, "%cost")
}
