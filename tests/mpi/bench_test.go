package mpi

import (
	"fmt"

	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/grouptest"
)

// bench times n rounds of a combine on all ranks.
func (j *job) bench(t testing.TB, groups []grouptest.Group, size, n int) time.Duration {
	longest := make(chan time.Duration, len(groups))
	for _, g := range groups {
		go func() {
			a, err := g.(*group).call(request{Do: "bench", Group: g.(*group).id, Arena: make([]byte, size), Count: n})
			if err != nil {
				t.Error(err)
			}
			longest <- a.Lasted
		}()
	}
	var most time.Duration
	for range groups {
		most = max(most, <-longest)
	}
	require.False(t, t.Failed())
	return most
}

// BenchmarkCombine times a combine of float16 over MPI.
func BenchmarkCombine(b *testing.B) {
	for _, c := range []struct{ ranks, size int }{{2, 1 << 10}, {2, 4 << 10}, {2, 16 << 10}, {2, 64 << 10}, {2, 1 << 20}, {2, 4 << 20}, {4, 16 << 10}, {4, 4 << 20}} {
		b.Run(fmt.Sprintf("ranks=%d/KiB=%d", c.ranks, c.size>>10), func(b *testing.B) {
			j := launch(b, c.ranks)
			b.Cleanup(func() { j.end(b) })
			groups := j.connect(b, setup{OpTimeout: time.Minute})
			j.bench(b, groups, c.size, 10)
			b.ResetTimer()
			took := j.bench(b, groups, c.size, b.N)
			b.StopTimer()
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "combine-us")
		})
	}
}
