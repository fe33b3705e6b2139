package moe_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/kerneltest"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// rank holds the results of one rank of a group.
type rank struct {
	out    []float32 // [MaxTokens][D] of the last step
	digest []uint32
	stats  []parallel.LayerStats
	err    error
}

// setting says how a test runs its ranks.
type setting struct {
	shares []float64
	reduce parallel.Reduce
	wire   parallel.Wire
	hashed bool
	lazy   bool // on a deferred backend
	steps  int  // layers run one after the other; 0 means 1
	scale  float32
	shared sharing // of the shared expert
	before func(f *moe.Forward)
}

// sharing says how the shared expert is divided.
type sharing string

const (
	none       sharing = ""
	replicated sharing = "replicated"
	divided    sharing = "divided"
)

func (s sharing) place(t *testing.T, v *bench, shares []float64) parallel.Placement {
	place := parallel.ByExperts
	if s == divided {
		place = parallel.Everything
	}
	p, err := place(parallel.Sizes{Experts: v.shape.Experts, Shared: v.shape.Segments}, shares)
	require.NoError(t, err)
	return p
}

// byRanges returns a placement that divides only the experts.
func byRanges(ranges ...parallel.Range) parallel.Placement {
	p := make(parallel.Placement, len(ranges))
	for r := range p {
		p[r].Experts = ranges[r]
	}
	return p
}

// ranks runs the bench of seed on a group of len(shares) ranks, each with its
// own backend and copy of the weights.
func ranks(t *testing.T, seed uint64, c setting) []rank {
	t.Helper()
	all := make([]rank, len(c.shares))
	groups := memory.Groups(len(c.shares))
	var done sync.WaitGroup
	for r := range all {
		b := openCPU(t, 1)
		if c.lazy {
			b = deferred.Wrap(b)
		}
		v := newBench(t, b, seed, c.hashed)
		if c.scale != 0 {
			v.layer.Scale = c.scale
		}
		if c.shared != none {
			v.share()
		}
		meter := parallel.NewMeter(nil)
		f, err := moe.NewForward(b, v.shape, c.reduce, meter)
		require.NoError(t, err)
		require.NoError(t, f.Join(groups[r], c.shared.place(t, v, c.shares), c.wire))
		if c.before != nil {
			c.before(f)
		}
		out := kerneltest.OnDevice(t, b, make([]float32, v.shape.MaxTokens*v.shape.Embd))
		f.Poison()
		f.StartStep(max(1, c.steps))
		done.Go(func() {
			for i := range max(1, c.steps) {
				if err := f.Begin(t.Context(), i, &v.layer, v.x, v.tokens, v.shape.MaxTokens, nil); err != nil {
					all[r].err = err
					return
				}
				if err := f.Finish(t.Context(), out); err != nil {
					all[r].err = err
					return
				}
			}
			if all[r].err = b.Flush(); all[r].err != nil {
				return
			}
			all[r].out, all[r].digest = slices.Clone(out), slices.Clone(f.Digest())
			all[r].stats = meter.Stats()
			f.Free()
		})
	}
	done.Wait()
	return all
}

// alone returns the output of one rank that owns all experts.
func alone(t *testing.T, seed uint64, reduce parallel.Reduce, hashed bool, scale float32, shared sharing) []float32 {
	b := openCPU(t, 1)
	v := newBench(t, b, seed, hashed)
	if scale != 0 {
		v.layer.Scale = scale
	}
	if shared != none {
		v.share()
	}
	return slices.Clone(run(t, b, v, parallel.Range{Start: 0, End: 9}, reduce))
}

var someShares = [][]float64{{1, 1}, {5, 1}, {1, 1, 1}, {1, 2, 3, 4}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 1e-6, 1}}

// TestExactIsOneMachine: with Exact any number of ranks with any shares gives
// the bits of one rank, whatever the wire type, and on a deferred backend too.
func TestExactIsOneMachine(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		for _, shared := range []sharing{none, replicated, divided} {
			want := kerneltest.Bits(alone(t, 3, parallel.Exact, hashed, 0, shared))
			for i, shares := range someShares {
				for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
					lazy := i%2 == int(wire)
					all := ranks(t, 3, setting{shares: shares, reduce: parallel.Exact, wire: wire, hashed: hashed, shared: shared, lazy: lazy, steps: 2})
					for r, got := range all {
						require.NoError(t, got.err)
						require.Equal(t, want, kerneltest.Bits(got.out), "rank %d of %v, %v, lazy %v, shared expert %s", r, shares, wire, lazy, shared)
						require.Equal(t, all[0].digest, got.digest)
						require.Zero(t, got.stats[0].Overflows)
						require.EqualValues(t, 1, got.stats[1].Exchanges)
					}
				}
			}
		}
	}
}

// TestSumIsNear: with Sum all ranks have the same bits. They are close to those
// of one rank, and closer with float32 on the wire.
func TestSumIsNear(t *testing.T) {
	for _, shared := range []sharing{none, replicated, divided} {
		t.Run(string("shared expert "+shared), func(t *testing.T) { sumIsNear(t, shared) })
	}
}

func sumIsNear(t *testing.T, shared sharing) {
	want := alone(t, 4, parallel.Sum, false, 0, shared)
	distance := func(got []float32) float64 {
		sum := 0.0
		for i := range want {
			sum += math.Pow(float64(want[i]-got[i]), 2)
		}
		return math.Sqrt(sum / float64(len(want)))
	}
	for _, shares := range someShares {
		far := map[parallel.Wire]float64{}
		for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
			for _, lazy := range []bool{false, true} {
				all := ranks(t, 4, setting{shares: shares, wire: wire, lazy: lazy, shared: shared, steps: 3})
				for _, got := range all {
					require.NoError(t, got.err)
					require.Equal(t, kerneltest.Bits(all[0].out), kerneltest.Bits(got.out))
					require.Len(t, got.digest, 3)
					require.Equal(t, all[0].digest, got.digest)
				}
				far[wire] = distance(all[0].out)
			}
		}
		require.Less(t, far[parallel.F16], 1e-3)
		require.Less(t, far[parallel.F32], 1e-6)
		require.Less(t, far[parallel.F32], far[parallel.F16])
	}
}

// TestOverflow: outputs beyond the range of float16 make every rank repeat the
// exchange in float32, and are counted.
func TestOverflow(t *testing.T) {
	const scale = 1e6
	for _, lazy := range []bool{false, true} {
		for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
			want := alone(t, 5, reduce, false, scale, divided)
			largest := 0.0
			for _, v := range want {
				largest = max(largest, math.Abs(float64(v)))
			}
			require.Greater(t, largest, 65520.0, "the test must leave half's range")
			require.Less(t, largest, math.MaxFloat32)
			for _, shares := range someShares {
				all := ranks(t, 5, setting{shares: shares, reduce: reduce, scale: scale, lazy: lazy, shared: divided, steps: 2})
				for _, got := range all {
					require.NoError(t, got.err)
					require.Equal(t, kerneltest.Bits(all[0].out), kerneltest.Bits(got.out))
					require.EqualValues(t, 1, got.stats[0].Overflows)
					require.EqualValues(t, 1, got.stats[0].Exchanges)
				}
				if reduce == parallel.Exact {
					require.Equal(t, kerneltest.Bits(want), kerneltest.Bits(all[0].out))
				} else {
					for i, v := range want {
						require.InDelta(t, v, all[0].out[i], largest*1e-6)
					}
				}
			}
		}
	}
}

// TestExactNotFinite: infinities and NaN in the experts' outputs give the same
// result as on one rank.
func TestExactNotFinite(t *testing.T) {
	want := alone(t, 5, parallel.Exact, false, float32(math.Inf(1)), divided)
	odd := 0
	for _, v := range want {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			odd++
		}
	}
	require.NotZero(t, odd)
	for r, got := range ranks(t, 5, setting{shares: []float64{1, 2, 2}, reduce: parallel.Exact, scale: float32(math.Inf(1)), shared: divided}) {
		require.NoError(t, got.err)
		require.Equal(t, kerneltest.Bits(want), kerneltest.Bits(got.out), "rank %d", r)
	}
}

// TestExactOverflowOnOneMachine: an output beyond the range of float16 is not
// rounded; the rest of its row is.
func TestExactOverflowOnOneMachine(t *testing.T) {
	for _, v := range alone(t, 5, parallel.Exact, false, 1e6, none) {
		require.False(t, math.IsInf(float64(v), 0) || math.IsNaN(float64(v)))
	}
}

// TestDefences: each of the three defences keeps remote experts out when the
// other two are off, whatever the scratch memory contained before. With all
// three off the sum is wrong, so the test can fail.
func TestDefences(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		for _, c := range []struct {
			name                string
			mask, compact, zero bool // switched off
			right               bool
		}{
			{"all", false, false, false, true},
			{"the mask alone", false, true, true, true},
			{"compaction alone", true, false, true, true},
			{"zeroed rows alone", true, true, false, true},
			{"none", true, true, true, false},
		} {
			t.Run(fmt.Sprintf("%s, hashed %v", c.name, hashed), func(t *testing.T) {
				b := openCPU(t, 1)
				v := newBench(t, b, 6, hashed)
				f, err := moe.NewForward(b, v.shape, parallel.Sum, parallel.NewMeter(nil))
				require.NoError(t, err)
				f.Own(parallel.Range{Start: 2, End: 6})
				f.SwitchOff(c.mask, c.compact, c.zero)
				out := kerneltest.OnDevice(t, b, make([]float32, v.shape.MaxTokens*v.shape.Embd))
				want, worst := v.plain(parallel.Range{Start: 2, End: 6}, false), 0.0
				for range 2 { // the second step finds what the first one left, overwritten with poison
					f.Poison()
					require.NoError(t, f.Begin(t.Context(), 0, &v.layer, v.x, v.tokens, v.shape.MaxTokens, nil))
					require.NoError(t, f.Finish(t.Context(), out))
					require.NoError(t, b.Flush())
					for i, w := range want {
						require.False(t, math.IsNaN(float64(out[i])))
						worst = max(worst, math.Abs(w-float64(out[i])))
					}
				}
				if c.right {
					require.Less(t, worst, 2e-6)
				} else {
					require.Greater(t, worst, 0.01)
				}
			})
		}
	}
}

// TestGroupOfDefences: ranks with one defence each agree with one rank that
// owns all experts.
func TestGroupOfDefences(t *testing.T) {
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		want := alone(t, 7, reduce, false, 0, none)
		for _, off := range [][3]bool{{false, true, true}, {true, false, true}, {true, true, false}} {
			all := ranks(t, 7, setting{shares: []float64{1, 3, 2}, reduce: reduce,
				before: func(f *moe.Forward) { f.SwitchOff(off[0], off[1], off[2]) }})
			for _, got := range all {
				require.NoError(t, got.err)
				for i, v := range want {
					require.InDelta(t, v, got.out[i], 3e-3)
				}
			}
		}
	}
}

// TestDigestSeesTheChoice: different tokens give different choices and so a
// different digest.
func TestDigestSeesTheChoice(t *testing.T) {
	a := ranks(t, 8, setting{shares: []float64{1, 1}})
	b := ranks(t, 9, setting{shares: []float64{1, 1}})
	require.NotEqual(t, a[0].digest, b[0].digest)
}

// TestGroupErrors: errors of the group are wrapped with the layer's number.
func TestGroupErrors(t *testing.T) {
	b := openCPU(t, 1)
	v := newBench(t, b, 10, false)
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		f, err := moe.NewForward(b, v.shape, reduce, parallel.NewMeter(nil))
		require.NoError(t, err)
		g := memory.Groups(2)[0]
		require.NoError(t, f.Join(g, byRanges(parallel.Range{Start: 0, End: 5}, parallel.Range{Start: 5, End: 9}), parallel.F16))
		verdict := &distributed.PeerError{Rank: 1, Cause: "no heartbeat for 4 s"}
		require.NoError(t, f.Begin(t.Context(), 12, &v.layer, v.x, v.tokens, 3, nil))
		g.Fail(verdict)
		out := kerneltest.OnDevice(t, b, make([]float32, 3*v.shape.Embd))
		err = f.Finish(t.Context(), out)
		require.ErrorContains(t, err, "layer 12: all_")
		require.ErrorIs(t, err, distributed.ErrPeerGone)
		f.Free()
	}
}

func TestJoinErrors(t *testing.T) {
	b := openCPU(t, 1)
	f, err := moe.NewForward(b, moe.Shape{Embd: 1, FF: 1, Experts: 9, Used: 1, MaxTokens: 1}, parallel.Sum, parallel.NewMeter(nil))
	require.NoError(t, err)
	g := memory.Groups(2)[1]
	for want, ranges := range map[string][]parallel.Range{
		"1 ranges of experts for 2 ranks":      {{Start: 0, End: 9}},
		"rank 1 gets experts 5 to 9":           {{Start: 0, End: 4}, {Start: 5, End: 9}},
		"rank 1 gets experts 4 to 3":           {{Start: 0, End: 4}, {Start: 4, End: 3}},
		"rank 0 gets experts -1 to 4":          {{Start: -1, End: 4}, {Start: 4, End: 9}},
		"the ranges of experts end at 8 of 9":  {{Start: 0, End: 4}, {Start: 4, End: 8}},
		"the ranges of experts end at 10 of 9": {{Start: 0, End: 4}, {Start: 4, End: 10}},
	} {
		err := f.Join(g, byRanges(ranges...), parallel.F16)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
	require.NoError(t, f.Join(g, byRanges(parallel.Range{Start: 0, End: 9}, parallel.Range{Start: 9, End: 9}), parallel.F16))
	require.NoError(t, f.Join(nil, nil, parallel.F16))
	require.NoError(t, f.Join(memory.Groups(1)[0], byRanges(parallel.Range{Start: 0, End: 9}), parallel.F16))
}
