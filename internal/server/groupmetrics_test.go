package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPopularQuarter(t *testing.T) {
	ratio, known := popularQuarter([]uint64{0, 0, 0, 0, 0, 0, 0, 0})
	require.False(t, known)
	require.Zero(t, ratio)
	ratio, known = popularQuarter([]uint64{1, 1, 1, 1, 1, 1, 1, 1})
	require.True(t, known)
	require.InDelta(t, 0.25, ratio, 1e-9)
	ratio, _ = popularQuarter([]uint64{0, 6, 0, 1, 0, 2, 0, 1})
	require.InDelta(t, 0.8, ratio, 1e-9)
}
