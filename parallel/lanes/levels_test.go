//go:build cgo

package lanes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
)

// TestLevelsAgree: at every level of this host rows are converted as Go converts them block
// by block: blocks that need any number of lanes and any shift, some with what is not a
// number, and rows whose last block is short.
func TestLevelsAgree(t *testing.T) {
	best := level
	defer func() { level = best }()
	r := rand.New(rand.NewPCG(41, 42))
	for _, width := range []int{7, 64, 130, 1024} {
		const rows = 70
		sums := make([]int64, rows*width)
		seen := map[int]int{}
		blocks(sums, width, func(i int, x []int64) {
			size := i % 63
			shift := r.IntN(size + 1)
			for j := range x {
				if x[j] = (r.Int64N(1<<size) - r.Int64N(1<<size)) >> shift << shift; i%9 == 8 && j%5 == 3 {
					x[j] = kernels.NotANumber
				}
			}
			seen[limitsOf(x).Packed(len(x)).form()]++
		})
		for _, form := range []int{zeros, oneLane, twoLanes, manyLanes} {
			require.NotZero(t, seen[form], "form %d", form)
		}
		require.Equal(t, width >= Block, seen[words] > 0 && seen[triples] > 0)
		limits, layouts := make([]Limits, Blocks(rows, width)), make([]Layout, Blocks(rows, width))
		blocks(sums, width, func(i int, x []int64) { limits[i] = limitsOf(x) })
		Pack(layouts, limits, width)
		want := make([]int32, Len(layouts, width))
		rest := want
		blocks(sums, width, func(i int, x []int64) { rest = layouts[i].encode(rest, x) })
		require.Empty(t, rest)
		for level = 0; level <= best; level++ {
			got, lanes := make([]Limits, len(limits)), make([]int32, len(want))
			require.True(t, fastMeasure(got, sums, width))
			require.Equal(t, limits, got)
			require.True(t, fastEncode(lanes, layouts, sums, width))
			require.Equal(t, want, lanes)
			for _, how := range []struct{ replace, careful bool }{{false, true}, {false, false}, {true, false}} {
				t.Run(fmt.Sprintf("width %d, level %d, %v", width, level, how), func(t *testing.T) {
					to, sum := make([]int64, len(sums)), make([]int64, len(sums))
					for i := range to {
						if to[i] = r.Int64N(1000); how.careful && i%11 == 1 {
							to[i] = kernels.NotANumber
						}
					}
					if copy(sum, to); how.replace {
						clear(sum)
					}
					rest := want
					blocks(sum, width, func(i int, x []int64) { rest = layouts[i].add(x, rest, how.careful) })
					require.True(t, fastAdd(to, layouts, lanes, width, how.replace, how.careful))
					require.Equal(t, sum, to)
				})
			}
		}
	}
}

func BenchmarkLanes(b *testing.B) {
	const rows, width = 512, 1024
	sums := make([]int64, rows*width)
	for i := range sums {
		sums[i] = rand.Int64N(1<<24) - 1<<23
	}
	limits, layouts, lanes := make([]Limits, Blocks(rows, width)), make([]Layout, Blocks(rows, width)), make([]int32, rows*width)
	Measure(limits, sums, width)
	Pack(layouts, limits, width)
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"Measure", func() { Measure(limits, sums, width) }},
		{"Encode", func() { Encode(lanes, layouts, sums, width) }},
		{"Replace", func() { Replace(sums, layouts, lanes, width) }},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.SetBytes(8 * rows * width)
			for b.Loop() {
				step.run()
			}
		})
	}
}
