package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHolds: a tensor is read as the matrices that it holds, joined or not; with its
// dimensions in another order it would be read as others.
func TestHolds(t *testing.T) {
	for _, shape := range [][]int64{{64, 32, 4}, {64, 128}, {64, 32, 4, 1}, {64, 128, 1}} {
		require.True(t, holds(shape, 64, 32, 4), shape)
	}
	for _, shape := range [][]int64{{64, 4, 32}, {32, 64, 4}, {64, 64, 2}, {64, 1, 128}, {64, 32, 2, 2}, {64, 32}, {8192}} {
		require.False(t, holds(shape, 64, 32, 4), shape)
	}
	require.True(t, holds([]int64{64}, 64, 1, 1))
	require.True(t, holds([]int64{64, 32}, 64, 32, 1))
	require.False(t, holds([]int64{64, 16, 2}, 64, 32, 1))
}
