package calibrate_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// staged is a placement in stages of so many ranks each, which divide the layers evenly.
func staged(t *testing.T, sizes parallel.Sizes, ranks ...int) parallel.Placement {
	var layers []parallel.Range
	var parts []parallel.Placement
	for i, n := range ranks {
		layers = append(layers, parallel.Range{Start: i * sizes.Layers / len(ranks), End: (i + 1) * sizes.Layers / len(ranks)})
		p, err := parallel.Place(parallel.ShareExperts, sizes, slices.Repeat([]float64{1}, n))
		require.NoError(t, err)
		parts = append(parts, p)
	}
	return parallel.InStages(layers, parts)
}

// TestPipelineOfToken: the stages together run the ops of one rank, and a token takes their
// time, the messages between them and the way back of its final row.
func TestPipelineOfToken(t *testing.T) {
	tr, sizes := tracer(t, parallel.Exact)
	w := calibrate.Work{Rows: 1, Pos: 200}
	alone, err := parallel.Place(parallel.ShareExperts, sizes, []float64{1})
	require.NoError(t, err)
	host := calibrate.Host{Memory: 1e9, Compute: 1e12, Op: 1e-6}
	network := calibrate.Network{Latency: 3e-3, Rate: 1e8, Hops: 1}
	costs := calibrate.Suppose(slices.Repeat([]calibrate.Host{host}, 3), network)
	one := costs
	one.Models = costs.Models[:1]
	want, err := tr.Expect(t.Context(), alone, one, w)
	require.NoError(t, err)
	of, err := tr.Traces(t.Context(), alone, w)
	require.NoError(t, err)

	p := staged(t, sizes, 1, 1, 1)
	pipeline, err := tr.Pipeline(t.Context(), p, costs, w)
	require.NoError(t, err)
	var ops cost.Trace
	for i, s := range pipeline.Stages {
		require.Len(t, s.Pieces, 1)
		own := s.Pieces[0][0]
		if last := len(own) - 1; i < len(pipeline.Stages)-1 { // on one rank a part of the next HCMix
			require.Equal(t, "HCExpand", own[last].Op.Kind)
			own = own[:last]
		}
		ops = append(ops, own...)
	}
	ops = append(ops, pipeline.Stages[0].Head[0]...)
	require.Equal(t, kindsOf(of[0]), kindsOf(ops))
	require.Positive(t, pipeline.Final)
	require.GreaterOrEqual(t, pipeline.Pieces[0].Bytes, pipeline.Final, "residual streams")

	got, err := tr.Expect(t.Context(), p, costs, w)
	require.NoError(t, err)
	require.Empty(t, got.Unknown)
	messages := 3*network.Latency + float64(2*pipeline.Pieces[0].Bytes+pipeline.Final)/network.Rate
	require.InEpsilon(t, want.Seconds+messages, got.Seconds, 0.01)
	again, err := tr.Expect(t.Context(), alone, one, w)
	require.NoError(t, err)
	require.InEpsilon(t, want.Seconds, again.Seconds, 1e-9, "the tracer has all layers again")
}

// kindsOf are the ops of a trace in order.
func kindsOf(trace cost.Trace) (kinds []string) {
	for _, e := range trace {
		if e.Op != nil {
			kinds = append(kinds, e.Op.Kind)
		}
	}
	return kinds
}

// TestPipelineOfPrompt: a prompt of several steps goes through the stages in the pieces of the
// model, and on a link that costs nothing two stages take about half the time of one.
func TestPipelineOfPrompt(t *testing.T) {
	tr, sizes := tracer(t, parallel.Exact)
	w := calibrate.Work{Rows: 300} // steps of 128, 128 and 44
	fast := calibrate.Suppose(slices.Repeat([]calibrate.Host{{Memory: 1e12, Compute: 1e9}}, 2), calibrate.Network{Rate: 1e15, Hops: 1})
	p := staged(t, sizes, 1, 1)
	pipeline, err := tr.Pipeline(t.Context(), p, fast, w)
	require.NoError(t, err)
	bytes, lasts := 0, []bool{}
	for _, piece := range pipeline.Pieces {
		bytes += piece.Bytes
		lasts = append(lasts, piece.Last)
	}
	require.Equal(t, []bool{true, true, true}, lasts, "without logits a step is one piece, and so is a short one")
	require.Zero(t, bytes%w.Rows)
	e, err := pipeline.Expect()
	require.NoError(t, err)
	require.Less(t, e.Seconds, 0.75*(e.Compute[0]+e.Compute[1]))

	// Ranks of one stage exchange over the links inside, which may differ from those across.
	islands := calibrate.Network{Latency: 1e-3, Rate: 1e6, Hops: 1, Islands: []int{0, 0, 1, 1}, Inside: &calibrate.Network{Latency: 1e-6, Rate: 1e9, Hops: 1}}
	costs := calibrate.Suppose(slices.Repeat([]calibrate.Host{{Memory: 1e12, Compute: 1e9}}, 4), islands)
	pipeline, err = tr.Pipeline(t.Context(), staged(t, sizes, 2, 2), costs, w)
	require.NoError(t, err)
	for i, s := range pipeline.Stages {
		require.Len(t, s.Pieces[0], 2)
		require.InDelta(t, 1e-6, s.Links["all_sum"].Fixed, 1e-12)
		require.InDelta(t, 1e-3, pipeline.Next[i].Fixed, 1e-12)
	}
	e, err = pipeline.Expect()
	require.NoError(t, err)
	require.Empty(t, e.Unknown)
	require.Len(t, e.Compute, 4)
	_, err = tr.Pipeline(t.Context(), p, fast, calibrate.Work{Rows: 2000})
	require.ErrorContains(t, err, "a step of 2000 tokens")
}
