//go:build cgo

package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
)

// TestApproximateScores: a level that looks at approximate scores first selects
// exactly the entries that the others select by exact scores. Random keys leave
// few candidates; keys that differ only in the last bit, or one that is far
// longer than the rest, leave many; with infinities, and with queries beyond
// float32, there is no bound and all scores are exact.
func TestApproximateScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	normal := func(int) float64 { return rng.NormFloat64() }
	times := func(f float64) func(int) float64 { return func(int) float64 { return f * rng.NormFloat64() } }
	base := make([]float64, 4096)
	for i := range base {
		base[i] = rng.NormFloat64()
	}
	for _, c := range []struct {
		name            string
		query, key      func(i int) float64
		weight          func(i int) float64
		rows, heads     int
		dim, top, sight int // sight is the number of entries that the last token sees
	}{
		{"random", normal, normal, normal, 3, 64, 128, 512, 3000},
		{"random, of one token", normal, normal, normal, 1, 64, 128, 512, 5000},
		{"random, more than a batch", normal, normal, normal, 70, 64, 128, 500, 1100},
		{"random, positive weights", normal, normal, func(int) float64 { return rng.Float64() }, 2, 64, 128, 512, 2100},
		{"some tokens need not choose", normal, normal, normal, 40, 33, 32, 100, 109},
		{"all but one", normal, normal, normal, 2, 16, 64, 998, 999},
		{"one of many", normal, normal, normal, 2, 1, 32, 1, 999},
		{"heads and columns that fill no tile", normal, normal, normal, 2, 67, 96, 40, 777},
		{"columns of no whole chunk", normal, normal, normal, 2, 67, 37, 40, 777},
		{"equal keys", normal, func(i int) float64 { return base[i%64] }, normal, 2, 8, 64, 100, 900},
		{"keys apart by a last bit", normal, func(i int) float64 { return base[i%128] * (1 + float64(rng.IntN(2))/1024) }, normal, 2, 64, 128, 300, 1500},
		{"one long key", normal, func(i int) float64 {
			if i/128 == 77 {
				return 3000 * rng.NormFloat64()
			}
			return 0.01 * rng.NormFloat64()
		}, normal, 2, 64, 128, 200, 1000},
		{"no keys", normal, func(int) float64 { return 0 }, normal, 2, 8, 64, 100, 400},
		{"short keys", normal, times(1e-7), normal, 2, 8, 64, 100, 900},
		{"short queries", times(1e-30), normal, normal, 2, 8, 64, 100, 900},
		{"queries below normal", times(1e-39), normal, normal, 2, 8, 64, 100, 900},
		{"queries below normal, large weights", times(1e-39), normal, times(1e30), 2, 8, 64, 100, 900},
		{"long queries", times(1e29), normal, times(1e-3), 2, 8, 64, 100, 900},
		{"queries too long", times(1e36), times(1000), times(1e-6), 2, 8, 64, 100, 900},
		{"small weights", normal, normal, times(1e-38), 2, 8, 64, 100, 900},
		{"no weights", normal, normal, func(int) float64 { return 0 }, 2, 8, 64, 100, 900},
		{"infinite keys", normal, func(i int) float64 {
			if i%5003 == 99 {
				return math.Inf(1)
			}
			return rng.NormFloat64()
		}, normal, 2, 8, 64, 100, 900},
		{"infinite weights", normal, normal, func(i int) float64 {
			if i == 3 {
				return math.Inf(-1)
			}
			return rng.NormFloat64()
		}, 2, 8, 64, 100, 900},
	} {
		for _, ratio := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, ratio %d", c.name, ratio), func(t *testing.T) {
				q, w, keys := make([]float32, c.rows*c.heads*c.dim), make([]float32, c.rows*c.heads), make([]uint16, c.sight*c.dim)
				for i := range q {
					q[i] = float32(c.query(i))
				}
				for i := range w {
					w[i] = float32(c.weight(i))
				}
				for i := range keys {
					keys[i] = float16.Fromfloat32(float32(c.key(i))).Bits()
				}
				var want []int32
				levels := cpu.Levels()
				for _, level := range levels {
					if level.SameBits() != levels[len(levels)-1].SameBits() {
						continue // other levels round scores differently
					}
					for _, threads := range []int{1, 3} {
						b, err := cpu.NewLevel(threads, level)
						require.NoError(t, err)
						got := make([]int32, c.rows*c.top)
						b.IndexTopK(kernels.IndexArgs{
							Q: q, HeadWeight: w, Cache: keys, Selected: got, Rows: c.rows, Pos: c.sight*ratio - c.rows, Heads: c.heads,
							Dim: c.dim, TopK: c.top, Ratio: ratio, Scale: 0.011,
						})
						require.NoError(t, b.Close())
						if want == nil {
							want = got
						}
						require.Equal(t, want, got, "%v, %d threads", level, threads)
					}
				}
			})
		}
	}
}
