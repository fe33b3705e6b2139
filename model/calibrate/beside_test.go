package calibrate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// TestBesideGPU: what the backend of two runs on the CPU is so in the trace, with one wait for the GPU in
// each layer with routed experts and one at the end, and a shared expert is encoded before the
// CPU's ops. Each product of a plain trace is in it once.
func TestBesideGPU(t *testing.T) {
	var sizes parallel.Sizes
	tr, err := calibrate.NewTracerBesideGPU(func(b kernels.Backend) (decoder.Decoder, error) {
		m := open(t, b, options(parallel.Sum))
		sizes = m.Sizes()
		return m, nil
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, tr.Close()) }()
	plain, _ := tracer(t, parallel.Sum)
	p, err := parallel.Place(parallel.ShareExperts, sizes, decodertest.Ones(1))
	require.NoError(t, err)
	work := calibrate.Work{Rows: 1, Pos: 20}
	traces, err := tr.Traces(t.Context(), p, work)
	require.NoError(t, err)
	before, err := plain.Traces(t.Context(), p, work)
	require.NoError(t, err)

	experts := func(trace cost.Trace) (n int) {
		for _, e := range trace {
			if e.Op != nil && e.Op.Chosen != nil {
				n++
			}
		}
		return n
	}
	layers := experts(before[0]) / 2
	require.Positive(t, layers)
	require.Equal(t, 2*layers, experts(traces[0]))
	waits, meanwhile := 0, 0
	for i, e := range traces[0] {
		switch {
		case e.Reach:
			waits++
			next := slices.IndexFunc(traces[0][i:], func(e cost.Event) bool { return e.Op != nil && e.Op.OnCPU })
			meanwhile += max(0, next-1)
		case e.Op.OnCPU:
			name, _, _ := strings.Cut(e.Op.Kind, " ")
			require.Contains(t, []string{"ExpertMask", "ExpertCompact", "ExpertGateUp", "ExpertDown", "SumSlots"}, name)
		default:
			require.Nil(t, e.Op.Chosen, e.Op.Kind)
		}
	}
	require.Equal(t, layers+1, waits)
	require.GreaterOrEqual(t, meanwhile, 2*layers, "a shared expert of two products runs meanwhile")
	reads, cpu := calibrate.Reads(traces[0])
	all, none := calibrate.Reads(before[0])
	require.Equal(t, all, reads)
	require.Zero(t, none)
	require.Positive(t, cpu)
	require.Less(t, cpu, reads)
}
