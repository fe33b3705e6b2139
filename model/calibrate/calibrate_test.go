package calibrate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/internal/host"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// options are those of the models of these tests.
func options(reduce parallel.Reduce) decoder.OpenOptions {
	return decoder.OpenOptions{Context: 1024, MaxTokens: 128, Reduce: reduce}
}

// open opens the built-in model on a backend.
func open(t *testing.T, b kernels.Backend, o decoder.OpenOptions) decoder.Decoder {
	f, err := builtin.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	m, err := arch.Open(f, b, o)
	require.NoError(t, err)
	return m
}

func tracer(t *testing.T, reduce parallel.Reduce) (*calibrate.Tracer, parallel.Sizes) {
	var sizes parallel.Sizes
	tr, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		m := open(t, b, options(reduce))
		sizes = m.Sizes()
		return m, nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tr.Close()) })
	return tr, sizes
}

// processor is a backend of one thread. The model on it closes it.
func processor(t *testing.T) kernels.Backend {
	b, err := cpu.New(1)
	require.NoError(t, err)
	return b
}

// measured calibrates a group of two ranks of this process, each on its backend, with a
// placement of everything, and returns rank 0's costs. If there are clocks, each rank goes
// by its own, by which it must take less than two seconds.
func measured(t *testing.T, groups []*distributed.Group, o decoder.OpenOptions, clocks []clock, backend func(rank int) kernels.Backend) calibrate.Costs {
	t.Helper()
	return measuredOn(t, groups, o, clocks, nil, backend)
}

// measuredOn is measured with the number of times that each rank has waited for its disk, nil
// for those of this process.
func measuredOn(t *testing.T, groups []*distributed.Group, o decoder.OpenOptions, clocks []clock, reads []int64, backend func(rank int) kernels.Backend) calibrate.Costs {
	costs, errs := make([]calibrate.Costs, 2), make([]error, 2)
	var wg sync.WaitGroup
	for r, g := range groups {
		b := record.Wrap(backend(r))
		m := open(t, b, o)
		p, err := parallel.Everything(m.Sizes(), decodertest.Ones(2))
		require.NoError(t, err)
		budget := calibrate.Standard()
		if clocks != nil {
			budget.Now = clocks[r].Now
		}
		if reads != nil {
			budget.Reads = func() int64 { return reads[r] }
		}
		wg.Go(func() {
			defer g.Close()
			costs[r], errs[r] = calibrate.Measure(t.Context(), g, m, b, p, budget)
		})
		t.Cleanup(func() { require.NoError(t, m.Close()); require.NoError(t, b.Close()) })
	}
	wg.Wait()
	for r := range groups {
		require.NoError(t, errs[r])
	}
	for r := range clocks {
		require.Less(t, clocks[r].elapsed(), 2*time.Second)
		t.Log(clocks[r].elapsed())
	}
	require.Empty(t, costs[1].Models, "the costs are the leader's")
	return costs[0]
}

// work is the seconds of multiplications of a rank, as if each took one.
func work(traces []cost.Trace, r int) (n float64) {
	for _, e := range traces[r] {
		switch {
		case e.Op == nil:
		case e.Op.Chosen != nil:
			n += e.Op.Chosen.Work * float64(e.Op.Chosen.End-e.Op.Chosen.Start)
		default:
			n += e.Op.Work
		}
	}
	return n
}

// TestTraces: a rank of a group does its part; what all ranks do together is what one
// does alone, but for what is replicated; exchanges are those of the placement.
func TestTraces(t *testing.T) {
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		t.Run(reduce.String(), func(t *testing.T) {
			tr, sizes := tracer(t, reduce)
			exchanges := func(trace cost.Trace) (n, waits int) {
				for _, e := range trace {
					if e.Start != nil {
						n++
					} else if e.Op == nil {
						waits++
					}
				}
				return n, waits
			}
			place := func(how parallel.Share, ranks int) parallel.Placement {
				p, err := parallel.Place(how, sizes, decodertest.Ones(ranks))
				require.NoError(t, err)
				return p
			}
			for _, w := range []calibrate.Work{{Rows: 1, Pos: 200}, {Rows: 128, Pos: 0}, {Rows: 3, Pos: 130}} {
				alone, err := tr.Traces(t.Context(), place(parallel.ShareExperts, 1), w)
				require.NoError(t, err)
				n, _ := exchanges(alone[0])
				require.Zero(t, n)
				experts, err := tr.Traces(t.Context(), place(parallel.ShareExperts, 2), w)
				require.NoError(t, err)
				all, err := tr.Traces(t.Context(), place(parallel.ShareAll, 2), w)
				require.NoError(t, err)
				ne, we := exchanges(experts[0])
				na, wa := exchanges(all[0])
				require.Equal(t, ne, we)
				require.Equal(t, na, wa)
				require.Equal(t, 2*ne+1, na, "two exchanges a layer, and the gather of the logits")
				require.Less(t, work(experts, 1), work(alone, 0))
				require.Less(t, work(all, 1), work(experts, 1))
				require.Greater(t, work(all, 0)+work(all, 1), 0.99*work(alone, 0))
				again, err := tr.Traces(t.Context(), place(parallel.ShareAll, 2), w)
				require.NoError(t, err)
				require.Equal(t, all, again)
			}
			_, err := tr.Traces(t.Context(), place(parallel.ShareAll, 2), calibrate.Work{Rows: 129})
			require.ErrorContains(t, err, "129 tokens after 0")
		})
	}
}

// TestMeasure: after a calibration of two ranks every op and exchange of a step has a
// line, in less than two seconds, and the model runs alone as before.
func TestMeasure(t *testing.T) {
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		t.Run(reduce.String(), func(t *testing.T) {
			tr, sizes := tracer(t, reduce)
			start := time.Now()
			c := measured(t, memory.Groups(2), options(reduce), nil, func(int) kernels.Backend { return processor(t) })
			t.Logf("calibrated in %v", time.Since(start))
			require.Len(t, c.Models, 2)
			for _, how := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
				p, err := parallel.Place(how, sizes, decodertest.Ones(2))
				require.NoError(t, err)
				for _, w := range []calibrate.Work{{Rows: 1, Pos: 128}, {Rows: 128, Pos: 0}} {
					e, err := tr.Expect(t.Context(), p, c, w)
					require.NoError(t, err)
					require.Empty(t, e.Unknown)
					require.Positive(t, e.Seconds)
					t.Logf("%v %+v: %.2f ms ± %.0f %%, compute %.2f ms", how, w, 1e3*e.Seconds, 100*e.Error, 1e3*e.Compute[0])
				}
			}
		})
	}
}

// failing is a model that cannot run steps.
type failing struct{ calibrate.Model }

func (failing) Prepare(model.Step) error {
	return errors.New("no memory\x1b[2J\nfor the step " + strings.Repeat("x", 2000))
}

// TestMeasureMissing: a rank that cannot measure says so to the leader, and the group
// continues.
func TestMeasureMissing(t *testing.T) {
	costs, errs, agreed := make([]calibrate.Costs, 2), make([]error, 2), make([][]int, 2)
	var wg sync.WaitGroup
	for r, g := range memory.Groups(2) {
		b := record.Wrap(processor(t))
		var m calibrate.Model = open(t, b, options(parallel.Sum))
		p, err := parallel.Everything(m.(decoder.Decoder).Sizes(), decodertest.Ones(2))
		require.NoError(t, err)
		if r == 1 {
			m = failing{m}
		}
		budget := calibrate.Budget{Ops: time.Millisecond, Exchanges: time.Millisecond, Now: time.Now, Reads: host.DiskReads}
		wg.Go(func() {
			costs[r], errs[r] = calibrate.Measure(t.Context(), g, m, b, p, budget)
			if errs[r] == nil {
				agreed[r], errs[r] = calibrate.Agree(t.Context(), g, 7)
			}
		})
	}
	wg.Wait()
	for r := range errs {
		require.NoError(t, errs[r])
		require.Equal(t, []int{7}, agreed[r])
	}
	require.Contains(t, costs[0].Missing, `rank 1: `)
	require.Contains(t, costs[0].Missing, `no memory\u001b[2J for the step xxx`, "safe for a terminal")
	require.Less(t, len(costs[0].Missing), 1100)
	require.Zero(t, costs[1])
}

// TestAgree: all ranks get rank 0's choice.
func TestAgree(t *testing.T) {
	var wg sync.WaitGroup
	for r, g := range memory.Groups(3) {
		wg.Go(func() {
			got, err := calibrate.Agree(context.Background(), g, 7+r, r)
			if err != nil || !slices.Equal(got, []int{7, 0}) {
				t.Errorf("rank %d has %d, %v", r, got, err)
			}
		})
	}
	wg.Wait()
}
