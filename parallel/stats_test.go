package parallel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// TestMeter: times are measured by the clock, and counting allocates nothing.
func TestMeter(t *testing.T) {
	at := time.Unix(0, 0)
	m := parallel.NewMeter(func() time.Time {
		at = at.Add(time.Second)
		return at
	})
	step := func() {
		m.StartStep()
		for layer := range 2 {
			m.EndLayer(layer)
		}
	}
	step()
	step()
	want := []parallel.LayerStats{{Compute: 2 * time.Second}, {Compute: 2 * time.Second}}
	require.Equal(t, want, m.Stats())
	m.Join(memory.Groups(2)[0])
	require.Zero(t, testing.AllocsPerRun(10, step))
	total := m.Stats()[0]
	total.Add(want[1])
	require.Equal(t, m.Stats()[0].Compute+2*time.Second, total.Compute)
}

// TestCountRouted: a layer counts what this rank, the busiest and all computed, and the
// imbalance is the largest over the mean.
func TestCountRouted(t *testing.T) {
	m := parallel.NewMeter(nil)
	m.StartStep()
	m.CountRouted([]assign.Load{{Slots: 4, Experts: 4}, {Slots: 2, Experts: 2}}, 1, 10)
	m.EndLayer(0)
	m.CountRouted([]assign.Load{{Slots: 1, Experts: 1}, {Slots: 5, Experts: 1}}, 1, 10)
	m.EndLayer(1)
	var sum parallel.LayerStats
	for _, l := range m.Stats() {
		sum.Add(l)
	}
	require.Equal(t, parallel.Routed{Rows: 7, Bytes: 30, BusiestRows: 9, BusiestBytes: 50, AllRows: 12, AllBytes: 80}, sum.Routed)
	rows, bytes := sum.Routed.Imbalance(2)
	require.InDelta(t, 1.5, rows, 1e-9)
	require.InDelta(t, 1.25, bytes, 1e-9)
	require.Equal(t, m.Stats()[1].Routed, sum.Since(m.Stats()[0]).Routed)
	rows, _ = parallel.Routed{}.Imbalance(2)
	require.InDelta(t, 1, rows, 1e-9)
}
