package parallel_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/parallel"
)

// termsOf are kinds of terms.
var termsOf = []struct {
	name string
	term func(r *rand.Rand, i int) float32
	wide bool // some sums may need more than one lane
}{
	{"usual", func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64()) }, false},
	{"subnormal", func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 1e-6) }, false},
	{"large", func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 1e3) }, true},
	{"some large", func(r *rand.Rand, i int) float32 {
		if i%1024 == 5 {
			return float32(r.NormFloat64() * 3e4)
		}
		return float32(r.NormFloat64() * 0.01)
	}, true},
	{"of any size", func(r *rand.Rand, _ int) float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(56)-28)) }, true},
	{"edges", func(r *rand.Rand, _ int) float32 {
		x := []float32{0, float32(math.Copysign(0, -1)), 0x1p-24, 0x1p-25, 65504, 65519.996, 65520, 65536, 0x1p30, 0x1.fffffep30}[r.IntN(10)]
		return x * float32(2*r.IntN(2)-1)
	}, true},
	{"not finite", func(r *rand.Rand, i int) float32 {
		if i%57 == 3 {
			return []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p31, -1e30}[r.IntN(5)]
		}
		return float32(r.NormFloat64())
	}, true},
}

// exactly is the sum of terms as SumExact defines it.
func exactly(terms []float32) float32 {
	sum := new(big.Float).SetPrec(200)
	for _, v := range terms {
		if h := float16.Fromfloat32(v); !h.IsInf(0) {
			v = h.Float32()
		}
		if !(math.Abs(float64(v)) < 0x1p31) {
			return math.Float32frombits(0x7fc00000)
		}
		sum.Add(sum, big.NewFloat(float64(v)))
	}
	out, _ := sum.Float32()
	return out + 0 // no negative zero
}

// TestSums: ranks that have any terms each get the sums of big numbers, rounded once. All
// ranks get all rows or some of them, and the rows are few or many.
func TestSums(t *testing.T) {
	const width, count = 130, 5
	r := rand.New(rand.NewPCG(31, 32))
	for k, kind := range termsOf {
		for s, size := range []int{1, 2, 3, 4, 5, 8} {
			rows := []int{1, 6, 45, 270}[(k+s)%4]
			t.Run(fmt.Sprintf("%s, %d ranks, %d rows", kind.name, size, rows), func(t *testing.T) {
				terms := make([]float32, rows*count*width)
				for i := range terms {
					if terms[i] = kind.term(r, i); i/width%count == 4 && i%3 > 0 { // cancels the first term
						terms[i] = -terms[i-4*width]
					}
				}
				want := make([]float32, rows*width)
				for i := range want {
					var x [count]float32
					for j := range x {
						x[j] = terms[(i/width*count+j)*width+i%width]
					}
					want[i] = exactly(x[:])
				}
				owner := make([]int, len(terms)) // of each term
				for i := range owner {
					owner[i] = r.IntN(size)
				}
				weights := make([]float64, size)
				for i := range weights {
					weights[i] = r.Float64()
				}
				parts, err := parallel.Divide(rows, weights)
				require.NoError(t, err)
				for _, cut := range [][]parallel.Range{nil, parts} {
					if cut == nil || size > 1 {
						addOnRanks(t, size, width, count, rows, terms, owner, cut, want, kind.wide)
					}
				}
			})
		}
	}
}

func addOnRanks(t *testing.T, size, width, count, rows int, terms []float32, owner []int, cut []parallel.Range, want []float32, wide bool) {
	t.Helper()
	groups, errs := memory.Groups(size), make([]error, size)
	outs := make([][]float32, size)
	meters := make([]*parallel.Meter, size)
	var done sync.WaitGroup
	for rank := range size {
		var b kernels.Backend
		b, err := cpu.New(1)
		require.NoError(t, err)
		if rank%2 > 0 {
			b = deferred.Wrap(b)
		}
		defer b.Close()
		meters[rank] = parallel.NewMeter(nil)
		s, err := parallel.NewSums(b, width, rows, meters[rank].For(parallel.ForExperts))
		require.NoError(t, err)
		defer s.Free()
		if size > 1 {
			require.NoError(t, s.Join(groups[rank], cut != nil))
			meters[rank].Join(groups[rank])
		}
		mine, err := kernels.Make[float32](b, len(terms))
		require.NoError(t, err)
		for i, v := range terms {
			if owner[i] == rank {
				mine[i] = v
			}
		}
		out, err := kernels.Make[float32](b, rows*width)
		require.NoError(t, err)
		done.Go(func() {
			own := parallel.Range{End: rows}
			for range 2 { // the second finds what the first left
				s.Set(mine, rows, count)
				if size > 1 {
					if errs[rank] = s.Start(t.Context(), rows, cut); errs[rank] != nil {
						return
					}
					if errs[rank] = s.Finish(t.Context()); errs[rank] != nil {
						return
					}
				}
				if cut != nil {
					own = cut[rank]
				}
				s.Round(out, own.Len())
				if errs[rank] = b.Flush(); errs[rank] != nil {
					return
				}
			}
			outs[rank] = out[:own.Len()*width]
		})
	}
	done.Wait()
	for rank, out := range outs {
		require.NoError(t, errs[rank], "rank %d", rank)
		from := 0
		if cut != nil {
			from = cut[rank].Start * width
		}
		require.Equal(t, bits(want[from:from+len(out)]), bits(out), "rank %d of %v", rank, cut)
		if size > 1 {
			meters[rank].EndLayer(0)
			stats := meters[rank].Stats()[0]
			require.EqualValues(t, 2, stats.Exchanges)
			if !wide {
				require.Zero(t, stats.Overflows)
			}
		}
	}
}

// TestSumsOfNone: a rank without terms of a step adds to none of the previous step, before
// and after the exchange.
func TestSumsOfNone(t *testing.T) {
	const width = 3
	groups := memory.Groups(2)
	var done sync.WaitGroup
	for rank, g := range groups {
		b, err := cpu.New(1)
		require.NoError(t, err)
		defer b.Close()
		s, err := parallel.NewSums(b, width, 1, parallel.NewMeter(nil).For(parallel.ForExperts))
		require.NoError(t, err)
		defer s.Free()
		require.NoError(t, s.Join(g, false))
		ones, err := kernels.Make[float32](b, width)
		require.NoError(t, err)
		out, err := kernels.Make[float32](b, width)
		require.NoError(t, err)
		for i := range ones {
			ones[i] = 1
		}
		done.Go(func() {
			for _, before := range []bool{true, false} {
				s.Set(ones, 1, 1) // the previous step
				assert.NoError(t, b.Flush())
				want := float32(1)
				if rank == 0 {
					s.Set(ones, 1, 1)
				} else {
					s.SetZero()
				}
				if before {
					s.Add(ones, 1, 1)
					want += 2
				}
				assert.NoError(t, s.Start(t.Context(), 1, nil))
				assert.NoError(t, s.Finish(t.Context()))
				s.Add(ones, 1, 1)
				want++
				s.Round(out, 1)
				assert.NoError(t, b.Flush())
				assert.Equal(t, []float32{want, want, want}, out)
			}
		})
	}
	done.Wait()
}
