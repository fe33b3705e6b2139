package calibrate_test

import (
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
// each op, off by up to a part of noise.
func device(t *testing.T, c *clock, noise float64) kernels.Backend {
	random := rand.New(rand.NewPCG(5, 6))
	b := record.Wrap(processor(t))
	b.Show(func(op cost.Op, run func()) {
		c.pass(time.Duration(known(op.Kind).Seconds(op.Bytes, op.Work) * (1 + noise*(2*random.Float64()-1)) * float64(time.Second)))
		if slices.Contains([]string{cost.Route, "ExpertMask", "ExpertCompact"}, op.Kind) {
			run() // what follows depends on it
		}
	}, true)
	return b
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
		c := measured(t, memory.Groups(2), options(parallel.Sum), clocks, func(r int) kernels.Backend { return device(t, &clocks[r], noise) })
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
