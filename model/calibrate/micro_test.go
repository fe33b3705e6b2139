package calibrate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// TestMicroBatches: a step in two micro-batches has each exchange of its layers twice, one
// at a time, and while one is under way the other micro-batch computes. So on a slow link
// it is expected to take less time, and on a link that costs nothing more: experts are
// read twice.
func TestMicroBatches(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	plan, err := arch.Plan(f, options(parallel.Sum), 1)
	require.NoError(t, err)
	choices := 8 * plan.Used * 64 // bytes of the ids and weights of a micro-batch
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		tr, sizes := tracer(t, reduce)
		whole, err := parallel.Everything(sizes, []float64{2, 1})
		require.NoError(t, err)
		whole = whole.DivideRows(1)
		w := calibrate.Work{Rows: 128}
		once, err := tr.Traces(t.Context(), whole, w)
		require.NoError(t, err)
		micro := whole.MicroBatches(128)
		twice, err := tr.Traces(t.Context(), micro, w)
		require.NoError(t, err)

		const outside = 2 // the hidden states of the last rows, and the logits
		n, _, _ := overlaps(t, once[0], choices)
		for r := range twice {
			all, long, computed := overlaps(t, twice[r], choices)
			require.Equal(t, 2*(n-outside)+outside, all)
			require.Less(t, long, all, "the choices were told apart")
			require.GreaterOrEqual(t, computed, long-outside-1, "all but the last of the layers")
		}
		_, err = cost.Expect(twice, make([]cost.Model, 2), nil)
		require.NoError(t, err, "all ranks have the same exchanges")

		host := calibrate.Host{Memory: 1e10, Compute: 1e10, Op: 1e-6}
		expect := func(p parallel.Placement, rate float64) cost.Estimate {
			e, err := tr.Expect(t.Context(), p, calibrate.Suppose([]calibrate.Host{host, host}, calibrate.Network{Latency: 1e-6, Rate: rate, Hops: 1}), w)
			require.NoError(t, err)
			return e
		}
		for _, rate := range []float64{2e8, 1e15} {
			a, b := expect(whole, rate), expect(micro, rate)
			require.Greater(t, b.Compute[0], a.Compute[0])
			if rate < 1e9 {
				require.Less(t, b.Seconds, 0.95*a.Seconds)
				require.Less(t, b.Waiting[0], 0.8*a.Waiting[0])
			} else {
				require.Greater(t, b.Seconds, a.Seconds)
			}
		}
		short, err := tr.Traces(t.Context(), micro, calibrate.Work{Rows: 127})
		require.NoError(t, err)
		all, _, _ := overlaps(t, short[0], choices)
		require.Equal(t, n, all, "a shorter step is run in one")
	}
}

// overlaps counts the exchanges of a trace, without the votes on values beyond float16:
// all, those of other bytes than the choices of the experts, which follow others at once,
// and of these those during which a product is computed.
func overlaps(t *testing.T, trace cost.Trace, choices int) (all, long, computed int) {
	var under *cost.Exchange
	products := 0 // during the exchange
	for _, e := range trace {
		switch {
		case e.Op != nil:
			if e.Op.Work > 0 || e.Op.Chosen != nil {
				products++
			}
		case e.Start != nil:
			require.Nil(t, under, "one exchange at a time")
			under, products = e.Start, 0
		default:
			require.NotNil(t, under)
			if under.Kind != distributed.AllMax.String() {
				all++
				if under.Bytes != choices {
					long++
					computed += min(products, 1)
				}
			}
			under = nil
		}
	}
	return all, long, computed
}
