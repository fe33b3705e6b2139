package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
)

// TestPlan: the values of a kind of work take turns, other kinds do not.
func TestPlan(t *testing.T) {
	o := Options{Prefill: []int{512, 0, 8}, Decode: 4, Depths: []int{128, 4096}, Sequences: []int{1, 8}, Activations: []cpu.Activations{cpu.Bits15}}
	require.Equal(t, []turns{
		{{What: "prefill", N: 512, Sequences: 1}},
		{{What: "prefill", N: 8, Sequences: 1}},
		{{What: "decode", N: 4, Depth: 128, Sequences: 1}, {What: "decode", N: 4, Depth: 128, Sequences: 8}},
		{{What: "decode", N: 4, Depth: 4096, Sequences: 1}, {What: "decode", N: 4, Depth: 4096, Sequences: 8}},
	}, o.plan())
	o.Prefill, o.Depths, o.Activations = []int{8}, []int{128}, []cpu.Activations{cpu.Bits8, cpu.Bits15}
	require.Equal(t, []turns{
		{{What: "prefill", N: 8, Sequences: 1, Activations: 8}, {What: "prefill", N: 8, Sequences: 1, Activations: 15}},
		{
			{What: "decode", N: 4, Depth: 128, Sequences: 1, Activations: 8}, {What: "decode", N: 4, Depth: 128, Sequences: 8, Activations: 8},
			{What: "decode", N: 4, Depth: 128, Sequences: 1, Activations: 15}, {What: "decode", N: 4, Depth: 128, Sequences: 8, Activations: 15},
		},
	}, o.plan())
	o.Prefill, o.Decode = []int{0}, 0
	require.Empty(t, o.plan())
}

// TestCompare checks the table of steps of several sequences: the median of the steps, the
// mean of the ops, and an op that the first step does not have.
func TestCompare(t *testing.T) {
	op := func(name string, d time.Duration) profile.Op { return profile.Op{Name: name, Time: d} }
	var out bytes.Buffer
	b := bench{w: &out}
	require.NoError(t, b.compare(turns{
		{What: "decode", N: 2, Sequences: 1, Seconds: []float64{0.9, 0.2, 0.1}, ops: []profile.Op{op("MatMul a", 600*time.Millisecond)}},
		{What: "decode", N: 2, Sequences: 4, Seconds: []float64{0.3, 0.3, 0.8}, ops: []profile.Op{op("Gather", 12*time.Millisecond), op("MatMul a", 900*time.Millisecond)}},
	}))
	require.Equal(t, "a decode step by sequences, ms, and the ratio to the first:\n"+
		"        1        4   4/1 op\n"+
		"  100.000  150.000  1.50 (all)\n"+
		"  100.000  150.000  1.50 MatMul a\n"+
		"    0.000    2.000       Gather\n", out.String())
	out.Reset()
	require.NoError(t, b.compare(turns{{What: "decode", N: 2, Sequences: 1, Seconds: []float64{1}}}))
	require.Empty(t, out.String(), "one measurement has nothing to compare with")
}
