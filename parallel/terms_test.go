package parallel_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/parallel"
)

// number is a number of a term of a row of a sum, of the step-th step.
func number(step, row, term, i int, scale float32) float32 {
	return scale * float32(math.Sin(float64(1+i+7*term+31*row+101*step)))
}

// terms runs sums of 6 terms in steps of some rows on len(ranges) ranks, or on one
// rank with nil, and returns the results of all steps on each rank.
func terms(t *testing.T, how parallel.Reduce, wire parallel.Wire, ranges []parallel.Range, lazy bool, scale float32) [][]float32 {
	t.Helper()
	const count, most = 6, 5
	steps := []int{1, 5, 2, 2, 1}
	all := make([][]float32, max(1, len(ranges)))
	errs := make([]error, len(all))
	groups := memory.Groups(len(all))
	var done sync.WaitGroup
	for r := range all {
		var b kernels.Backend
		b, err := cpu.New(1)
		require.NoError(t, err)
		if lazy {
			b = deferred.Wrap(b)
		}
		defer b.Close()
		s, err := parallel.NewTerms(b, how, parallel.TermsShape{Terms: count, Width: width, MaxTokens: most}, parallel.NewMeter(nil).For("test"))
		require.NoError(t, err)
		if ranges != nil {
			require.NoError(t, s.Join(groups[r], ranges, wire, false))
		}
		defer s.Free()
		own := parallel.Range{End: count}
		if ranges != nil && !parallel.Replicated(count, ranges) {
			own = ranges[r]
		}
		require.Equal(t, own, s.Own())
		out, err := kernels.Make[float32](b, most*width)
		require.NoError(t, err)
		src, err := kernels.Make[float32](b, most*count*width)
		require.NoError(t, err)
		done.Go(func() {
			for step, rows := range steps {
				mine := s.Mine(out)
				at := 0
				for row := range rows {
					for k := own.Start; k < own.End; k++ {
						for i := range width {
							src[at] = number(step, row, k, i, scale)
							at++
						}
					}
				}
				switch n := own.Len(); {
				case n == 0:
				case s.Separate():
					b.SumSlots(mine, src, rows*n, 1, width) // a copy
				default:
					b.SumSlots(mine, src, rows, n, width)
				}
				if errs[r] = s.Start(t.Context(), rows, nil); errs[r] != nil {
					return
				}
				if errs[r] = s.Finish(t.Context(), out); errs[r] != nil {
					return
				}
				if errs[r] = b.Flush(); errs[r] != nil {
					return
				}
				all[r] = append(all[r], out[:rows*width]...)
			}
		})
	}
	done.Wait()
	for r := range all {
		require.NoError(t, errs[r], "rank %d", r)
		require.Equal(t, bits(all[0]), bits(all[r]), "rank %d", r)
	}
	return all
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// divisions of 6 terms.
var divisions = [][]parallel.Range{
	{{Start: 0, End: 3}, {Start: 3, End: 6}}, {{Start: 0, End: 1}, {Start: 1, End: 6}}, {{Start: 0, End: 6}, {Start: 6, End: 6}},
	{{Start: 0, End: 0}, {Start: 0, End: 4}, {Start: 4, End: 6}}, {{Start: 0, End: 6}, {Start: 0, End: 6}},
	{{Start: 0, End: 1}, {Start: 1, End: 2}, {Start: 2, End: 2}, {Start: 2, End: 5}, {Start: 5, End: 6}},
}

// TestTermsExact: any division has the bits of one rank, even beyond the range of
// float16 and with numbers that are not finite.
func TestTermsExact(t *testing.T) {
	for _, scale := range []float32{1, 1e5, float32(math.Inf(1))} {
		want := terms(t, parallel.Exact, parallel.F16, nil, false, scale)[0]
		for i, ranges := range divisions {
			for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
				got := terms(t, parallel.Exact, wire, ranges, (i+int(wire))%2 == 0, scale)[0]
				require.Equal(t, nans(want), nans(got))
				require.Equal(t, bits(finite(want)), bits(finite(got)), "%v %v scale %v", ranges, wire, scale)
			}
		}
	}
}

// nans marks NaNs, because their bits depend on the instructions, and finite
// replaces them.
func nans(x []float32) []bool {
	out := make([]bool, len(x))
	for i, v := range x {
		out[i] = v != v
	}
	return out
}

func finite(x []float32) []float32 {
	x = slices.Clone(x)
	for i, v := range x {
		if v != v {
			x[i] = 0
		}
	}
	return x
}

// TestTermsSum: sums are those of all terms, to the precision of the wire.
func TestTermsSum(t *testing.T) {
	for _, scale := range []float32{1, 1e5} {
		want := terms(t, parallel.Sum, parallel.F16, nil, false, scale)[0]
		for i, ranges := range divisions {
			for wire, most := range map[parallel.Wire]float64{parallel.F16: 4e-3, parallel.F32: 2e-6} {
				got := terms(t, parallel.Sum, wire, ranges, i%2 == 0, scale)[0]
				for i := range want {
					require.InDelta(t, want[i], got[i], most*float64(scale), fmt.Sprint(ranges, wire))
				}
			}
		}
	}
}
