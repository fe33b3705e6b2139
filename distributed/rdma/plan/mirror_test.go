package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// TestBothDirectionsCarryTheSame: data that is equally far both ways is split
// in half, so that no direction of a ring carries more than the other, and a
// long operation uses both.
func TestBothDirectionsCarryTheSame(t *testing.T) {
	for _, n := range []int{4, 5, 6, 8} {
		topo := Ring(n, 2)
		for _, c := range []struct {
			req  Request
			load float64 // of a direction of a link, in units of the bytes
		}{
			{Request{Op: AllGather, Bytes: 48 << 20}, float64(n-1) / 2},
			{Request{Op: AllSum, Bytes: 48 << 20, DType: distributed.Float16, Force: TwoShot}, scattered(n) + float64(n-1)/2/float64(n)},
			{Request{Op: ReduceScatter, Bytes: 48 << 20, DType: distributed.Float32}, scattered(n) * float64(n)},
			{Request{Op: AllSum, Bytes: 48 << 20, DType: distributed.Float32, Force: OneShot}, float64(n-1) / 2},
		} {
			p, err := New(Config{Topology: topo, Cap: 7}, c.req)
			require.NoError(t, err)
			require.Equal(t, 2-n%2, p.Directions, "%v", p)
			for _, prog := range p.Programs {
				bytes := make([]int64, n*n)
				for i := range prog.Ops {
					if o := &prog.Ops[i]; o.Kind == Move {
						bytes[o.From*n+o.To] += o.Elems * prog.width(o.Wide)
					}
				}
				for r := range n {
					for _, to := range []int{(r + 1) % n, (r + n - 1) % n} {
						require.InEpsilon(t, c.load*float64(c.req.Bytes)/2, bytes[r*n+to], 0.01, "%d to %d: %v", r, to, p)
					}
				}
			}
		}
	}
}

// scattered returns what a direction of a link carries when every rank sends
// 1/n to each other rank the shorter way: the sum of the distances up one side,
// n/8 of the vector for an even n.
func scattered(n int) float64 {
	sum := 0.0
	for d := 1; d <= (n-1)/2; d++ {
		sum += float64(d)
	}
	if n%2 == 0 {
		sum += float64(n) / 4
	}
	return sum / float64(n)
}
