package calibrate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/record"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// known is what ops take on the devices of TestKnownCosts: products of one row take another
// time a multiplication than those of several, as their kernels differ.
func known(kind string) cost.Line {
	if !strings.Contains(kind, " ") { // without weights
		return cost.Line{Fixed: 5e-6, PerByte: 2e-10, PerWork: 1e-9}
	}
	return cost.Line{Fixed: 20e-6, PerByte: 2e-9, PerWork: 0.05e-9}
}

// device is a backend that computes nothing, on which a clock passes by what known says of
// each op, off by up to a part of noise. A Flush after ops takes a wait, as of a GPU.
type device struct {
	*record.Backend
	clock   *clock
	wait    time.Duration
	pending *bool
}

// Flush implements kernels.Backend.
func (d device) Flush() error {
	if *d.pending {
		d.clock.pass(d.wait)
	}
	*d.pending = false
	return d.Backend.Flush()
}

func newDevice(t *testing.T, c *clock, noise float64, wait time.Duration) kernels.Backend {
	random := rand.New(rand.NewPCG(5, 6))
	b, pending := record.Wrap(processor(t)), false
	b.Show(func(op cost.Op, run func()) {
		pending = true
		c.pass(time.Duration(known(op.Kind).Seconds(op.Bytes, op.Work) * (1 + noise*(2*random.Float64()-1)) * float64(time.Second)))
		if slices.Contains([]string{cost.Route, "ExpertMask", "ExpertCompact"}, op.Kind) {
			run() // what follows depends on it
		}
	}, true)
	return device{b, c, wait, &pending}
}

// TestKnownCosts: the calibration of devices with known costs of ops expects those costs,
// also for steps that it has not run, and trusts itself less the more the costs vary.
func TestKnownCosts(t *testing.T) {
	tr, sizes := tracer(t, parallel.Sum)
	place, err := parallel.Place(parallel.ShareAll, sizes, decodertest.Ones(2))
	require.NoError(t, err)
	var before []float64
	for _, noise := range []float64{0, 0.3} {
		clocks := make([]clock, 2)
		c := measured(t, memory.Groups(2), options(parallel.Sum), clocks, func(r int) kernels.Backend { return newDevice(t, &clocks[r], noise, 0) })
		require.InDelta(t, noise/math.Sqrt(3), c.Models[0].Short.Jitter, noise/4, "of uniform noise")
		require.InDelta(t, 0, c.Models[0].Short.Excess, noise/4, "its mean is its median")
		var errors []float64
		for i, w := range []calibrate.Work{{Rows: 1, Pos: 128}, {Rows: 128, Pos: 0}} {
			traces, err := tr.Traces(t.Context(), place, w)
			require.NoError(t, err)
			got, err := cost.Expect(traces, c.Models, nil)
			require.NoError(t, err)
			want, err := cost.Expect(traces, trueModels(c.Models[0]), nil)
			require.NoError(t, err)
			t.Logf("noise %.1f, %+v: expected %.3f ms ± %.1f %%, true %.3f ms", noise, w, 1e3*got.Compute[0], 100*lines(c.Models[0]), 1e3*want.Compute[0])
			require.InEpsilon(t, want.Compute[0], got.Compute[0], 0.06+noise/2)
			errors = append(errors, lines(c.Models[0]))
			if before != nil {
				require.Greater(t, errors[i], before[i])
			}
		}
		before = errors
	}
}

// TestKnownCold: an op that waits for the disk is timed again, so that the calibration of a
// file that is not in memory expects what ops take once it is.
func TestKnownCold(t *testing.T) {
	tr, sizes := tracer(t, parallel.Sum)
	place, err := parallel.Place(parallel.ShareAll, sizes, decodertest.Ones(2))
	require.NoError(t, err)
	clocks, reads := make([]clock, 2), make([]int64, 2)
	c := measuredOn(t, memory.Groups(2), options(parallel.Sum), clocks, reads, func(r int) kernels.Backend {
		b, seen := record.Wrap(newDevice(t, &clocks[r], 0, 0)), map[string]bool{}
		b.Show(func(op cost.Op, run func()) {
			run()
			if size := fmt.Sprint(op); strings.Contains(op.Kind, " ") && !seen[size] { // weights, for the first time
				seen[size] = true
				reads[r]++
				clocks[r].pass(6 * time.Millisecond)
			}
		}, true)
		return b
	})
	for _, w := range []calibrate.Work{{Rows: 1, Pos: 128}, {Rows: 128, Pos: 0}} {
		traces, err := tr.Traces(t.Context(), place, w)
		require.NoError(t, err)
		got, err := cost.Expect(traces, c.Models, nil)
		require.NoError(t, err)
		want, err := cost.Expect(traces, trueModels(c.Models[0]), nil)
		require.NoError(t, err)
		require.InEpsilon(t, want.Compute[0], got.Compute[0], 0.06, "%+v", w)
	}
}

// TestKnownWait: the calibration finds the wait of a device that shows its results late, as a
// GPU does, and expects it once for each exchange of a placement and at the end of a step, not
// for each op.
func TestKnownWait(t *testing.T) {
	const wait = 200 * time.Microsecond
	tr, sizes := tracer(t, parallel.Sum)
	clocks := make([]clock, 2)
	c := measured(t, memory.Groups(2), options(parallel.Sum), clocks, func(r int) kernels.Backend { return newDevice(t, &clocks[r], 0, wait) })
	require.InEpsilon(t, wait.Seconds(), c.Models[0].Wait, 0.1)
	truth := trueModels(c.Models[0])
	free := cost.Links{}
	for kind := range c.Links {
		free[kind] = cost.Line{}
	}
	for _, ranks := range []int{1, 2} {
		for _, how := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
			p, err := parallel.Place(how, sizes, decodertest.Ones(ranks))
			require.NoError(t, err)
			traces, err := tr.Traces(t.Context(), p, calibrate.Work{Rows: 1, Pos: 128})
			require.NoError(t, err)
			got, err := cost.Expect(traces, c.Models[:ranks], free)
			require.NoError(t, err)
			ops, err := cost.Expect(traces, truth[:ranks], free)
			require.NoError(t, err)
			waits := 1
			for _, e := range traces[0] {
				if e.Start != nil {
					waits++
				}
			}
			t.Logf("%d ranks, %v: %d waits, %.3f ms of ops, expected %.3f ms", ranks, how, waits, 1e3*ops.Seconds, 1e3*got.Seconds)
			require.InEpsilon(t, ops.Seconds+float64(waits)*wait.Seconds(), got.Seconds, 0.1)
		}
	}
}

// trueModels is two ranks with each line of a model replaced by the true one.
func trueModels(measured cost.Model) []cost.Model {
	m := cost.Model{Ops: map[string]cost.Line{}}
	for kind := range measured.Ops {
		m.Ops[kind] = known(kind)
	}
	return []cost.Model{m, m}
}

// lines is the mean error of the lines of a model.
func lines(m cost.Model) (sum float64) {
	for _, l := range m.Ops {
		sum += l.Error / float64(len(m.Ops))
	}
	return sum
}
