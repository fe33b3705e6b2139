package parallel_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/parallel"
)

const width = 4

// combined is the result of one rank.
type combined struct {
	out   []float32
	stats parallel.LayerStats
	err   error
}

// combine runs one exchange of numbers [ranks][n] on a group and returns the result
// of every rank. counts are in numbers; nil means even parts.
func combine(t *testing.T, op parallel.Op, wire parallel.Wire, lazy bool, numbers [][]float32, counts []int) []combined {
	t.Helper()
	all := make([]combined, len(numbers))
	n := len(numbers[0])
	var done sync.WaitGroup
	for r, g := range memory.Groups(len(numbers)) {
		var b kernels.Backend
		b, err := cpu.New(1)
		require.NoError(t, err)
		if lazy {
			b = deferred.Wrap(b)
		}
		defer b.Close()
		meter := parallel.NewMeter(nil)
		meter.Join(g)
		c, err := parallel.NewCombiner(b, g, op, wire, n, meter.For("test"))
		require.NoError(t, err)
		defer c.Free()
		out, err := kernels.Make[float32](b, n)
		require.NoError(t, err)
		for i := range out {
			out[i] = -7 // what no exchange gives
		}
		done.Go(func() {
			// Only the numbers that the collective sends are set; the rest is
			// poison.
			for i := range c.Parts() {
				c.Parts()[i] = float32(math.NaN())
			}
			from, to := 0, n
			if op == parallel.AllGather || op == parallel.Gather {
				from, to = part(g.Rank(), g.Size(), n, counts)
			}
			copy(c.Parts()[from:to], numbers[r][from:to])
			meter.StartStep()
			if all[r].err = c.Start(t.Context(), n, counts); all[r].err != nil {
				return
			}
			if all[r].err = c.Finish(t.Context(), out, width); all[r].err != nil {
				return
			}
			all[r].err = b.Flush()
			meter.EndLayer(0)
			all[r].out, all[r].stats = slices.Clone(out), meter.Stats()[0] // Close frees out
		})
	}
	done.Wait()
	for r := range all {
		require.NoError(t, all[r].err, "rank %d", r)
	}
	return all
}

// part returns where the numbers of a rank begin and end.
func part(rank, size, n int, counts []int) (from, to int) {
	if counts == nil {
		return rank * n / size, (rank + 1) * n / size
	}
	for _, k := range counts[:rank] {
		from += k
	}
	return from, from + counts[rank]
}

// TestCombines: every collective gives the result of its definition, with even and
// uneven parts, in both types, on a backend that computes at once and on one that
// waits for Flush. The numbers are integers that float16 holds, so that the sums are
// exact.
func TestCombines(t *testing.T) {
	const n = 12 * width
	for _, counts := range [][]int{nil, {n}, {8 * width, 4 * width}, {0, n}, {5 * width, 0, 7 * width}} {
		size := len(counts)
		if counts == nil {
			size = 3
		}
		numbers, sum := make([][]float32, size), make([]float32, n)
		for r := range numbers {
			numbers[r] = make([]float32, n)
			for i := range numbers[r] {
				numbers[r][i] = float32(r*100 + i)
				sum[i] += numbers[r][i]
			}
		}
		gathered := make([]float32, 0, n)
		for r := range size {
			from, to := part(r, size, n, counts)
			gathered = append(gathered, numbers[r][from:to]...)
		}
		for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
			for _, lazy := range []bool{false, true} {
				for _, op := range []parallel.Op{parallel.AllReduce, parallel.ReduceScatter, parallel.AllGather, parallel.Gather} {
					what := fmt.Sprint(op, wire, lazy, counts)
					bytes := uint64(0)
					for r, got := range combine(t, op, wire, lazy, numbers, counts) {
						want := sum
						switch op {
						case parallel.ReduceScatter:
							from, to := part(r, size, n, counts)
							want = sum[from:to]
						case parallel.AllGather:
							want = gathered
						case parallel.Gather:
							if want = gathered; r > 0 {
								want = nil
							}
						}
						require.True(t, slices.Equal(want, got.out[:len(want)]), "%s: rank %d got %v", what, r, got.out)
						for _, v := range got.out[len(want):] {
							require.EqualValues(t, -7, v, "%s writes beyond its result", what)
						}
						require.EqualValues(t, 1, got.stats.Exchanges, what)
						require.Zero(t, got.stats.Overflows, what)
						bytes += got.stats.Sent + got.stats.Received
					}
					require.Equal(t, size > 1, bytes > 0, what)
				}
			}
		}
	}
}

// TestCombinesBeyondFloat16: one number beyond float16, on any rank, makes all ranks
// repeat in float32. Its row gets the exact value; the other rows stay rounded, as
// they are without it.
func TestCombinesBeyondFloat16(t *testing.T) {
	const size, rows = 3, 6
	const n = rows * width
	for _, op := range []parallel.Op{parallel.AllReduce, parallel.ReduceScatter, parallel.AllGather, parallel.Gather} {
		for culprit := range size {
			numbers := make([][]float32, size)
			for r := range numbers {
				numbers[r] = make([]float32, n)
				for i := range numbers[r] {
					numbers[r][i] = 0.1 // not a float16
				}
			}
			calm := combine(t, op, parallel.F16, true, numbers, nil)
			from, _ := part(culprit, size, n, nil)
			numbers[culprit][from+1] = 1e6
			for r, got := range combine(t, op, parallel.F16, true, numbers, nil) {
				require.EqualValues(t, 1, got.stats.Exchanges)
				require.EqualValues(t, 1, got.stats.Overflows, "%v: rank %d repeats for rank %d", op, r, culprit)
				own, end := 0, n // numbers of the whole that this rank got
				switch {
				case op == parallel.ReduceScatter:
					own, end = part(r, size, n, nil)
				case op == parallel.Gather && r > 0:
					end = 0
				}
				for i := own; i < end; i++ {
					v, was := got.out[i-own], calm[r].out[i-own]
					switch {
					case i == from+1:
						require.InDelta(t, 1e6, v, 1)
					case i/width == from/width: // its row, not rounded
						require.NotEqual(t, was, v, "%v: rank %d, number %d", op, r, i)
						require.InDelta(t, was, v, 1e-3)
					default:
						require.Equal(t, was, v, "%v: rank %d, number %d", op, r, i)
					}
				}
			}
		}
	}
}

// TestCombinerArguments: parts that do not fit the numbers or the group are refused
// before data is sent.
func TestCombinerArguments(t *testing.T) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	c, err := parallel.NewCombiner(b, memory.Groups(2)[0], parallel.AllGather, parallel.F16, 8, parallel.NewMeter(nil).For("test"))
	require.NoError(t, err)
	defer c.Free()
	for want, start := range map[string]func() error{
		"all-gather of 9 numbers; it has room for 8": func() error { return c.Start(t.Context(), 9, nil) },
		"7 numbers in 0 parts among 2 ranks":         func() error { return c.Start(t.Context(), 7, nil) },
		"8 numbers in 1 parts among 2 ranks":         func() error { return c.Start(t.Context(), 8, []int{8}) },
		"the part of rank 1 has -1 numbers":          func() error { return c.Start(t.Context(), 8, []int{9, -1}) },
		"but the parts have 7":                       func() error { return c.Start(t.Context(), 8, []int{4, 3}) },
	} {
		err := start()
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
	require.EqualValues(t, 8*6, parallel.CombinerBytes(parallel.AllGather, parallel.F16, 8))
	require.EqualValues(t, 8*8, parallel.CombinerBytes(parallel.ReduceScatter, parallel.F32, 8))
}
