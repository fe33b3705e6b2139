package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBesideGPU: the CPU's ops take the CPU's line and begin when it sees the GPU's results; the
// GPU's ops that were encoded before them run meanwhile, and those behind them wait for them.
func TestBesideGPU(t *testing.T) {
	m := unit
	m.CPU, m.Wait = &Line{PerByte: 10}, 0.25
	onCPU := func(bytes float64) Event { return Event{Op: &Op{Kind: "mul", Bytes: bytes, OnCPU: true}} }
	reach := Event{Reach: true}
	for name, c := range map[string]struct {
		trace   Trace
		seconds float64
		compute float64
	}{
		"the GPU alone":             {Trace{mul(3), reach}, 3.25, 3.25},
		"one after the other":       {Trace{mul(3), reach, onCPU(1), mul(2), reach}, 3.25 + 10 + 2.25, 15.5},
		"a short op beside":         {Trace{mul(3), reach, mul(4), onCPU(1), mul(2), reach}, 3.25 + 10 + 2.25, 15.5},
		"a long op beside":          {Trace{mul(3), reach, mul(12), onCPU(1), mul(2), reach}, 3.25 + 12 + 2.25, 17.5},
		"results seen before":       {Trace{mul(3), reach, onCPU(1), reach}, 3.25 + 10, 13.25},
		"an exchange of the CPU's":  {Trace{mul(3), reach, onCPU(1), reach, start("sum", 0, -1), wait, mul(1), reach}, 3.25 + 10 + 3 + 1.25, 14.5},
		"the CPU after an exchange": {Trace{start("sum", 0, -1), wait, onCPU(1), reach}, 0.25 + 3 + 10, 10},
	} {
		e, err := Expect([]Trace{c.trace}, []Model{m}, wires)
		require.NoError(t, err, name)
		require.InDelta(t, c.seconds, e.Seconds, 1e-9, name)
		require.InDelta(t, c.compute, e.Compute[0], 1e-9, name)
	}
	took, ok := m.Seconds(*onCPU(2).Op)
	require.True(t, ok)
	require.InDelta(t, 20, took, 1e-9)
}
