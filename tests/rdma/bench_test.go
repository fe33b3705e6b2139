//go:build cgo && (linux || darwin)

package rdma

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/reduce"
)

// times of a sum on rank 0. Where ranks share processors the median includes
// waiting for them; the fastest does not.
type times struct{ fastest, median time.Duration }

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// timed measures sums of n bytes on all ranks.
func timed(b *testing.B, x *ranks, n, count int) times {
	b.Helper()
	took := make([]float64, 0, count)
	x.all(b, func(g *distributed.Group) error {
		src, dst := make([]byte, n), make([]byte, n)
		if err := g.AllSum(b.Context(), dst, src, distributed.Float16); err != nil {
			return err
		}
		for range count {
			begun := time.Now()
			if err := g.AllSum(b.Context(), dst, src, distributed.Float16); err != nil {
				return err
			}
			if g.Rank() == 0 {
				took = append(took, float64(time.Since(begun)))
			}
		}
		return nil
	})
	return times{time.Duration(slices.Min(took)), time.Duration(median(took))}
}

func (s times) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(s.fastest)/1e3, "µs/fastest")
	b.ReportMetric(float64(s.median)/1e3, "µs/median")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSum measures a sum over a fabric that charges no time: the cost of
// the software alone.
func BenchmarkSum(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		for _, n := range []int{2 << 10, 16 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d", ranks, n), func(b *testing.B) {
				x := group(b, meshOf(ranks, 1, ""), ranks, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Spin = 0 })
				b.ResetTimer()
				timed(b, x, n, b.N).report(b)
			})
		}
	}
}

// BenchmarkStriping charges 0.5 GB/s and 6 µs for each rail, so that the time
// this host's processors spend copying hardly counts.
func BenchmarkStriping(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20, 64 << 20} {
		one := time.Duration(0)
		for rails := 1; rails <= 3; rails++ {
			b.Run(fmt.Sprintf("bytes=%d/rails=%d", n, rails), func(b *testing.B) {
				x := group(b, joined(2, rails, func(int, int) bool { return true }, "", "latency_ns=6000 mbps=500"), 2, func(_ int, o *rdma.Options, _ *distributed.Link) {
					o.Tuning.Model.Rate, o.Tuning.Model.Latency, o.Tuning.Model.Memory = 5e8, 6000, 8e9
				})
				b.ResetTimer()
				took := timed(b, x, n, max(1, b.N))
				if rails == 1 {
					one = took.fastest
				}
				took.report(b)
				b.ReportMetric(float64(n)/took.fastest.Seconds()/1e9, "GB/s")
				if one > 0 {
					b.ReportMetric(one.Seconds()/took.fastest.Seconds(), "times-one-rail")
				}
			})
		}
	}
}

// BenchmarkParts measures what any sum of 16 KiB must do on a rank: copy the block
// to a send slot for each peer, and add the blocks of all ranks. It also measures
// the work of the fabric: copying each message.
func BenchmarkParts(b *testing.B) {
	const n = 16 << 10
	for _, ranks := range []int{2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			blocks, slots := make([][]byte, ranks), make([][]byte, ranks)
			for k := range blocks {
				blocks[k], slots[k] = make([]byte, n), make([]byte, n)
			}
			dst := make([]byte, n)
			rank, fabric := time.Hour, time.Hour
			for range b.N {
				begun := time.Now()
				for _, s := range slots[1:] {
					copy(s, blocks[0])
				}
				reduce.Reduce(reduce.Sum, distributed.Float16, dst, blocks...)
				rank = min(rank, time.Since(begun))
				begun = time.Now()
				for k := range slots[1:] {
					copy(blocks[1+k], slots[1+k])
				}
				fabric = min(fabric, time.Since(begun))
			}
			b.ReportMetric(float64(rank)/1e3, "µs/rank")
			b.ReportMetric(float64(fabric)/1e3, "µs/fabric")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFrames runs sums over devices that take one frame a message (macOS 26.2),
// several (26.3) and packets (27.0), in turns: over cables that charge no time, and
// over cables of 1 GB/s and 6 µs.
func BenchmarkFrames(b *testing.B) {
	profiles := []string{"26.2", "26.3", "27.0"}
	for _, cable := range []string{"", "latency_ns=6000 mbps=1000"} {
		for _, n := range []int{2 << 10, 16 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("cable=%s/bytes=%d", cable, n), func(b *testing.B) {
				groups := map[string]*ranks{}
				for _, p := range profiles {
					groups[p] = group(b, joined(2, 1, func(int, int) bool { return true }, "profile="+p, cable), 2, func(_ int, o *rdma.Options, _ *distributed.Link) {
						o.Tuning.Spin = 0
						if cable != "" {
							o.Tuning.Model.Rate, o.Tuning.Model.Latency, o.Tuning.Model.Memory = 1e9, 6000, 8e9
						}
					})
				}
				b.ResetTimer()
				best, middle := map[string]float64{}, map[string][]float64{}
				for range b.N {
					for _, p := range profiles {
						took := timed(b, groups[p], n, 20)
						if old, ok := best[p]; !ok || took.fastest.Seconds() < old {
							best[p] = took.fastest.Seconds()
						}
						middle[p] = append(middle[p], took.median.Seconds())
					}
				}
				for _, p := range profiles {
					b.ReportMetric(best[p]*1e6, "µs/fastest-"+p)
					b.ReportMetric(median(middle[p])*1e6, "µs/median-"+p)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
