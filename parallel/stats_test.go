package parallel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/parallel"
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
