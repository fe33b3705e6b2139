package calibrate_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// TestSuppose: what is expected of hosts that were not measured is what one computes by
// hand. All hosts read 1 GB and multiply 10^12 times a second; an exchange takes 100 us
// and 1 GB a second.
func TestSuppose(t *testing.T) {
	host := calibrate.Host{Memory: 1e9, Compute: 1e12, Op: 1e-3}
	network := calibrate.Network{Latency: 100e-6, Rate: 1e9, Hops: 1}
	ring := network
	ring.Hops = 4
	gpu := host
	gpu.Wait = 500e-6
	op := func(bytes, work float64) cost.Event {
		return cost.Event{Op: &cost.Op{Kind: "any", Bytes: bytes, Work: work}}
	}
	exchange := func(k distributed.Kind, bytes, root int) []cost.Event {
		return []cost.Event{{Start: &cost.Exchange{Kind: k.String(), Bytes: bytes, Root: root}}, {}}
	}
	join := func(parts ...[]cost.Event) cost.Trace { return slices.Concat(parts...) }
	// The first exchange ends when the last rank, which begins a message later, has come;
	// what follows is the same on all ranks, and ends a message later. A message is one latency.
	for name, c := range map[string]struct {
		trace    cost.Trace
		ranks    int
		network  calibrate.Network
		want     float64
		received int64 // by rank 0
		others   int64 // by rank 1
	}{
		"an op":                       {join([]cost.Event{op(2e6, 3e9)}), 1, network, 1e-3 + 2e-3 + 3e-3, 0, 0},
		"a short sum of 2":            {join(exchange(distributed.AllSum, 10e3, -1)), 2, network, 2*100e-6 + 100e-6 + 10e-6, 10e3, 10e3},
		"a short sum of 4":            {join(exchange(distributed.AllSum, 10e3, -1)), 4, network, 2*100e-6 + 100e-6 + 30e-6, 30e3, 30e3},
		"a long sum of 4":             {join(exchange(distributed.AllSum, 4e6, -1)), 4, network, 2*100e-6 + 200e-6 + 6e-3, 6e6, 6e6},
		"a long sum of 2":             {join(exchange(distributed.AllSum, 4e6, -1)), 2, network, 2*100e-6 + 100e-6 + 4e-3, 4e6, 4e6},
		"a long sum of a ring of 8":   {join(exchange(distributed.AllSum, 8e6, -1)), 8, ring, 2*400e-6 + 800e-6 + 14e-3, 14e6, 14e6},
		"a sum of GPUs' results":      {join(exchange(distributed.AllSum, 10e3, -1)), 2, network, 2*100e-6 + 2*500e-6 + 100e-6 + 10e-6, 10e3, 10e3},
		"a vote of 4":                 {join(exchange(distributed.AllMax, 4, -1)), 4, network, 3*100e-6 + 12e-9, 12, 12},
		"a scattered sum of 4":        {join(exchange(distributed.ReduceScatter, 4e6, -1)), 4, network, 3*100e-6 + 3e-3, 3e6, 3e6},
		"a gather for all":            {join(exchange(distributed.AllGatherV, 4e6, -1)), 4, network, 3*100e-6 + 3e-3, 3e6, 3e6},
		"an even gather for all":      {join(exchange(distributed.AllGather, 4e6, -1)), 4, network, 3*100e-6 + 3e-3, 3e6, 3e6},
		"a gather for rank 0":         {join(exchange(distributed.Gather, 4e6, 0)), 4, network, 200e-6 + 3e-3, 3e6, 0},
		"computing hides an exchange": {join(exchange(distributed.AllSum, 1e6, -1)[:1], []cost.Event{op(9e6, 0), {}}), 2, network, 100e-6 + 10e-3 + 100e-6, 1e6, 1e6},
		"two exchanges, with an op":   {join(exchange(distributed.AllGatherV, 2e6, -1), []cost.Event{op(0, 1e9)}, exchange(distributed.AllSum, 1e6, -1)), 2, network, 2*100e-6 + 100e-6 + 1e-3 + 2e-3 + 100e-6 + 1e-3, 2e6, 2e6},
	} {
		one := host
		if strings.Contains(name, "GPUs") { // before the exchange, and at the end
			one = gpu
		}
		costs := calibrate.Suppose(slices.Repeat([]calibrate.Host{one}, c.ranks), c.network)
		e, err := cost.Expect(slices.Repeat([]cost.Trace{c.trace}, c.ranks), costs.Models, costs.Links)
		require.NoError(t, err, name)
		require.Empty(t, e.Unknown, name)
		require.InEpsilon(t, c.want, e.Seconds, 1e-9, name)
		require.Equal(t, c.received, c.network.Received(c.trace, 0, c.ranks), name)
		if c.ranks > 1 {
			require.Equal(t, c.others, c.network.Received(c.trace, 1, c.ranks), name)
		}
	}
	// The slowest of unlike hosts decides.
	slow := host
	slow.Memory /= 10
	trace := join([]cost.Event{op(1e6, 0)}, exchange(distributed.AllSum, 1000, -1))
	costs := calibrate.Suppose([]calibrate.Host{host, slow}, network)
	e, err := cost.Expect([]cost.Trace{trace, trace}, costs.Models, costs.Links)
	require.NoError(t, err)
	require.InEpsilon(t, 100e-6+11e-3+101e-6+100e-6, e.Seconds, 1e-9)
	require.InEpsilon(t, 2e-3, e.Compute[0], 1e-9)
	require.InEpsilon(t, 11e-3, e.Compute[1], 1e-9)
}

// TestSupposeModel: of the steps of a model every exchange has a line, one rank takes the
// sum of its ops, and latency, rate and ranks change the time as they must.
func TestSupposeModel(t *testing.T) {
	host := calibrate.Host{Memory: 1e13, Compute: 1e11, Op: 1e-9} // the model is so small that moving rows would count more than its products
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		tr, sizes := tracer(t, reduce)
		expect := func(how parallel.Share, ranks, divide int, n calibrate.Network, w calibrate.Work) cost.Estimate {
			p, err := parallel.Place(how, sizes, decodertest.Ones(ranks))
			require.NoError(t, err)
			e, err := tr.Expect(t.Context(), p.DivideRows(divide), calibrate.Suppose(slices.Repeat([]calibrate.Host{host}, ranks), n), w)
			require.NoError(t, err)
			require.Empty(t, e.Unknown)
			return e
		}
		fast := calibrate.Network{Latency: 1e-6, Rate: 1e9, Hops: 1}
		for _, w := range []calibrate.Work{{Rows: 1, Pos: 200}, {Rows: 128, Pos: 0}} {
			alone := expect(parallel.ShareExperts, 1, 0, fast, w)
			p, err := parallel.Place(parallel.ShareExperts, sizes, decodertest.Ones(1))
			require.NoError(t, err)
			traces, err := tr.Traces(t.Context(), p, w)
			require.NoError(t, err)
			sum := 0.0
			for _, e := range traces[0] {
				bytes, work := e.Op.Bytes, e.Op.Work
				if c := e.Op.Chosen; c != nil { // one row chooses Used; of 128 rows all but the expected few are chosen
					experts := float64(c.Used)
					if w.Rows > 1 {
						experts = float64(c.Of) * (1 - math.Pow(1-float64(c.Used)/float64(c.Of), float64(w.Rows)))
					}
					bytes, work = c.Bytes*experts, c.Work*float64(w.Rows*c.Used)
				}
				sum += 1e-9 + bytes/1e13 + work/1e11
			}
			near := 1e-9
			if w.Rows > 1 {
				near = 0.02 // of so many rows the experts are drawn
			}
			require.InEpsilon(t, sum, alone.Seconds, near)
			require.Equal(t, alone.Seconds, expect(parallel.ShareExperts, 1, 0, calibrate.Network{Latency: 1, Rate: 1, Hops: 9}, w).Seconds, "one rank needs no link")
			before := alone
			for _, ranks := range []int{2, 4} {
				for _, how := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
					for _, divide := range []int{0, 1} {
						at := expect(how, ranks, divide, fast, w)
						late, narrow, far := fast, fast, fast
						late.Latency, narrow.Rate, far.Hops = 1e-3, 1e7, 1000
						require.Greater(t, expect(how, ranks, divide, late, w).Seconds, at.Seconds)
						require.Greater(t, expect(how, ranks, divide, narrow, w).Seconds, at.Seconds)
						require.Equal(t, expect(how, ranks, divide, late, w).Seconds, expect(how, ranks, divide, far, w).Seconds, "a hop is a latency")
					}
				}
				all := expect(parallel.ShareAll, ranks, 0, fast, w)
				require.Less(t, all.Compute[0], before.Compute[0], "%d ranks, %+v", ranks, w)
				before = all
			}
		}
	}
}
