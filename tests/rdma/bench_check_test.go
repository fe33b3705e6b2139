//go:build cgo && (linux || darwin) && rm_unchecked

package rdma

import (
	"fmt"
	"testing"

	"ringmaster/distributed/rdma/internal/engine"
)

// BenchmarkCheck runs sums of 16 KiB on 2 and 4 ranks with and without the
// check of completions, alternately, and compares the medians and the fastest
// tenths of the turns. It requires the tag rm_unchecked.
func BenchmarkCheck(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			x := group(b, meshOf(ranks, 1, ""), ranks, nil)
			defer engine.Unchecked.Store(false)
			var with, without []float64
			b.ResetTimer()
			for turn := range 2 * max(b.N, 2) {
				off := turn%4 == 1 || turn%4 == 2 // the order alternates too
				engine.Unchecked.Store(off)
				fastest := float64(timed(b, x, 16<<10, 200).fastest.Nanoseconds())
				if off {
					without = append(without, fastest)
				} else {
					with = append(with, fastest)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(with), "ns/checked")
			b.ReportMetric(median(without), "ns/unchecked")
			b.ReportMetric((median(with)/median(without)-1)*100, "%median")
			b.ReportMetric((with[len(with)/10]/without[len(without)/10]-1)*100, "%tenth") // sorted by median
		})
	}
}
