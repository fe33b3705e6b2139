package calibrate

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel/cost"
)

// TestReceived: whatever numbers another rank sends, ops take no negative or infinite time,
// and what it has measured stays as it is.
func TestReceived(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"model": {"short": {"jitter": 30, "excess": -7}, "long": {"jitter": -1, "excess": 1e300}, "wait": -1, "spread": 1e300, "between": -1e300}}`,
		`{"model": {"ops": {"a": {"fixed": -1, "per_byte": 1e308, "per_work": -1e308, "error": 1e308},
			"b": {"knots": [{"bytes": 0, "seconds": -1}, {"bytes": -5, "seconds": 1e308}, {"bytes": 1e308, "seconds": 1e308}]},
			"c": {"from": -1, "many": {"fixed": -1, "per_byte": 1e308, "many": {"per_work": 1e308}}}},
			"other": {"fixed": 1e308, "per_byte": -1}, "between": 1e308}}`,
	} {
		from, err := received([]byte(text))
		require.NoError(t, err)
		m := from.Model
		complete([]cost.Model{m, {Ops: map[string]cost.Line{"a": {Fixed: 1}}}})
		for _, n := range []cost.Noise{m.Short, m.Long} {
			require.True(t, n.Jitter >= 0 && n.Jitter <= cost.MostJitter && n.Excess >= 0, text)
		}
		for _, kind := range []string{"a", "b", "c", "d"} {
			for _, size := range []float64{0, 1, 1e12} {
				s, _ := m.Seconds(cost.Op{Kind: kind, Bytes: size, Work: 1e3 * size})
				require.True(t, s >= 0 && !math.IsInf(s, 0), "%s %g: %g", kind, size, s)
			}
		}
	}
	measured := cost.Model{
		Ops: map[string]cost.Line{"a": {Fixed: 1e-5, PerByte: 1e-10, PerWork: 1e-9, Points: 4, Sizes: 3, Error: 0.1,
			Knots: []cost.Knot{{Bytes: 4096, Seconds: 1e-6}}, Many: &cost.Line{PerWork: 1e-10}, From: 3}},
		Between: -1e-6, Wait: 1e-4, Short: cost.Noise{Excess: 0.2, Jitter: 0.3}, Spread: 0.1, Other: &cost.Line{Fixed: 1e-6},
	}
	from, err := received(report(measured, nil))
	require.NoError(t, err)
	require.Equal(t, measured, from.Model)
	from, err = received(report(cost.Model{}, errors.New("no memory")))
	require.NoError(t, err)
	require.Equal(t, "no memory", from.Missing)
}
