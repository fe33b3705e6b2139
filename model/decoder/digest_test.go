package decoder

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDigestOfNaNs: ranks with NaNs that differ in sign and payload have computed the
// same; a NaN in another place, or a number in its place, is a difference.
func TestDigestOfNaNs(t *testing.T) {
	bits := func(row []float32) (b []uint32) {
		for _, x := range quietNaNs(row) {
			b = append(b, math.Float32bits(x))
		}
		return b
	}
	nan := math.Float32frombits
	row := []float32{1, nan(0x7fc00000), -2}
	want := bits(row)
	require.Equal(t, want, bits([]float32{1, nan(0xffc00000), -2}))
	require.Equal(t, want, bits([]float32{1, nan(0x7fc12345), -2}))
	require.NotEqual(t, want, bits([]float32{nan(0x7fc00000), 1, -2}))
	require.NotEqual(t, want, bits([]float32{1, float32(math.Inf(1)), -2}))
	require.Equal(t, bits([]float32{1, 2}), []uint32{math.Float32bits(1), math.Float32bits(2)})
}
