package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplayOfV41: a branch at half of a conversation of 16,384 tokens of V4.1 Flash costs the
// work of at most 2,600 tokens, however long the prefix, and of some 600 if a prompt of more
// than 2,605 tokens follows. TestReplayOfTrueShape checks that these are its stairs.
func TestReplayOfV41(t *testing.T) {
	const layers, slack = 40, 64
	s := Stairs{From: 20, Reach: 127, Group: 2, Before: 3}
	require.Equal(t, 5148, s.replay(layers, slack))
	for _, length := range []int{8192, 8193, 100_000} {
		known := length / s.Group * s.Group
		work := func(until int) float64 {
			rows := 0
			for l := range layers {
				first := s.first(l, layers, until, slack, known)
				require.GreaterOrEqual(t, first, length-s.replay(layers, slack)+s.Before+s.Reach, "layer %d", l)
				rows += max(0, length-first)
			}
			return float64(rows) / layers
		}
		require.InDelta(t, 2541, work(length), 1)
		require.InDelta(t, 603, work(length+s.tail(layers, slack)), 1)
	}
}
