//go:build cgo

package cpu_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
)

// TestSelectOfMany: the selection among many scores estimates a bound from a
// sample of them. The right entries are chosen in whatever order the scores
// come, equal ones included. Two heads of one dimension turn each key into a
// score.
func TestSelectOfMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for _, order := range []struct {
		name  string
		score func(i, n int) float64
	}{
		{"random", func(int, int) float64 { return rng.NormFloat64() }},
		{"few values", func(int, int) float64 { return float64(rng.IntN(7) - 3) }},
		{"equal", func(int, int) float64 { return 1 }},
		{"zeros", func(i, _ int) float64 { return math.Copysign(0, float64(i%3-1)) }},
		{"ascending", func(i, n int) float64 { return float64(i)/float64(n) - 0.5 }},
		{"descending", func(i, n int) float64 { return 0.5 - float64(i)/float64(n) }},
		{"high where the sample looks", func(i, _ int) float64 { return float64(100*(1-min(i%4, 1))) + rng.Float64() }},
		{"low where the sample looks", func(i, _ int) float64 { return float64(100*min(i%4, 1)) + rng.Float64() }},
		{"a few far above", func(i, _ int) float64 { return float64(1000*(1-min(i%97, 1))) + rng.Float64() }},
		{"with NaN, above all", func(i, _ int) float64 {
			if i%1001 == 7 {
				return math.NaN()
			}
			return rng.NormFloat64()
		}},
	} {
		for _, shape := range [][2]int{{2047, 5}, {2048, 512}, {4096, 512}, {5000, 4990}, {33001, 1}, {33001, 512}, {100001, 9000}, {270001, 512}} {
			n, k := shape[0], shape[1]
			t.Run(fmt.Sprintf("%s, %d of %d", order.name, k, n), func(t *testing.T) {
				cache, scores := make([]uint16, n), make([]float32, n)
				for i := range cache {
					half := float16.Fromfloat32(float32(order.score(i, n)))
					cache[i], scores[i] = half.Bits(), half.Float32()
					if scores[i] != scores[i] {
						cache[i], scores[i] = 0x7e00, float32(math.Inf(1)) // above all
					}
				}
				want := make([]int32, n)
				for i := range want {
					want[i] = int32(i)
				}
				slices.SortStableFunc(want, func(x, y int32) int { return cmp.Compare(scores[y], scores[x]) })
				want = want[:k]
				slices.Sort(want)
				for _, level := range cpu.Levels() {
					b, err := cpu.NewLevel(2, level)
					require.NoError(t, err)
					got := make([]int32, k)
					b.IndexTopK(kernels.IndexArgs{
						Q: []float32{1, -1}, HeadWeight: []float32{1, -1}, Cache: cache, Selected: got,
						Rows: 1, Pos: n - 1, Heads: 2, Dim: 1, TopK: k, Ratio: 1, Scale: 1,
					})
					require.NoError(t, b.Close())
					require.Equal(t, want, got, level.String())
				}
			})
		}
	}
}
