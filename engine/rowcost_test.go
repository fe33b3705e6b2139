package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRowCost: level and slope are found from steps of any numbers of rows, with noise and
// with single steps that take many times as long, and follow a change.
func TestRowCost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var c rowCost
	first, row := c.line()
	require.Equal(t, []float64{1, costUnknown}, []float64{first, row})
	for _, want := range [][2]float64{{0.04, 0.02}, {0.2, 0.02}} {
		for range 300 {
			drafts := max(0, r.IntN(9)-4)
			seconds := want[0] + want[1]*float64(drafts)
			seconds *= 0.8 + 0.4*r.Float64()
			if r.IntN(30) == 0 {
				seconds *= 20
			}
			c.learn(1+drafts, drafts, seconds)
		}
		first, row = c.line()
		require.InDelta(t, want[0], first, want[0]/4)
		require.InDelta(t, want[1], row, want[1]/2)
	}
	c.learn(0, 0, 1) // it only freed memory
	again, _ := c.line()
	require.Equal(t, first, again)
}

// TestOdds: estimates begin at the prior, follow outcomes of the kind, and a request's own
// more.
func TestOdds(t *testing.T) {
	var o odds
	require.InDelta(t, 0.5, o.of(0, 3, tally{}), 1e-9)
	require.InDelta(t, 0.9, o.of(0, 40, tally{}), 1e-9)
	for range 400 {
		o[0][kindOf(40)].add(false)
	}
	require.Less(t, o.of(0, 40, tally{}), 0.1)
	require.InDelta(t, 0.5, o.of(0, 3, tally{}), 1e-9, "another kind")
	require.Greater(t, o.of(0, 40, tally{40, 40}), 0.7)
	require.LessOrEqual(t, o[0][kindOf(40)].tried, remembered)
}
