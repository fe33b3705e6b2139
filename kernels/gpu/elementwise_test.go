//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
)

func TestElementwise(t *testing.T) {
	kerneltest.Run(t, open, "Add", "Clear", "ToFloat16", "FromFloat16", "SumSlots", "SumExact", "RoundSums", "Gather")
}

// TestGatherRows: a number that is no row of x touches no memory beyond x and
// fails Flush.
func TestGatherRows(t *testing.T) {
	for _, bad := range []int32{-1, 3, 1 << 30} {
		b := open(t)
		x, err := kernels.Make[float32](b, 3*2)
		require.NoError(t, err)
		out, err := kernels.Make[float32](b, 3*2)
		require.NoError(t, err)
		rows, err := kernels.Make[int32](b, 3)
		require.NoError(t, err)
		copy(x, []float32{1, 2, 3, 4, 5, 6})
		copy(rows, []int32{2, bad, 1})
		b.Gather(out, x, rows, 2)
		require.ErrorContains(t, b.Flush(), "row index", "%d", bad)
		require.Equal(t, []float32{5, 6, 0, 0, 3, 4}, out)
		require.NoError(t, b.Close())
	}
}
