package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of the architecture's specification for 64 rotated
// elements, base 160000, factor 16 and an original context of 65536.
func TestRoPEFreqsScaled(t *testing.T) {
	got := RoPEFreqs(64, 160000, YaRN{Factor: 16, Original: 65536, BetaFast: 32, BetaSlow: 1})
	require.Len(t, got, 32)
	for i, want := range map[int]float64{
		0: 1, 1: 6.876560219e-01, 14: 5.286856317e-03, 15: 3.635538584e-03, 16: 2.265625000e-03,
		20: 2.969777783e-04, 24: 1.953125000e-05, 25: 5.372312671e-06, 31: 5.680529037e-07,
	} {
		require.InEpsilon(t, want, float64(got[i]), 1e-6, "pair %d", i)
	}
}

func TestRoPEFreqsPlain(t *testing.T) {
	got := RoPEFreqs(64, 10000, YaRN{Factor: 1})
	require.Equal(t, float32(1), got[0])
	require.InEpsilon(t, 7.498942093e-01, float64(got[1]), 1e-6)
	require.InEpsilon(t, 1.333521432e-04, float64(got[31]), 1e-6)
}

// A ramp of no width (both betas fall on one pair) must not divide by zero.
func TestRoPEFreqsSteepRamp(t *testing.T) {
	for _, f := range RoPEFreqs(64, 160000, YaRN{Factor: 16, Original: 65536, BetaFast: 8, BetaSlow: 8}) {
		require.False(t, f != f || f <= 0 || f > 1, "frequency %v", f)
	}
	for _, f := range RoPEFreqs(2, 160000, YaRN{Factor: 16, Original: 4, BetaFast: 32, BetaSlow: 1}) {
		require.False(t, f != f || f <= 0 || f > 1, "frequency %v", f)
	}
}

// Betas in the wrong order make a ramp that ends before it begins: pairs up to its
// beginning keep their frequency, the others are scaled, as the formula's
// max(0.001, hi - lo) says.
func TestRoPEFreqsRampInReverse(t *testing.T) {
	y := YaRN{Factor: 16, Original: 65536, BetaFast: 1, BetaSlow: 32}
	scaled, plain := RoPEFreqs(64, 160000, y), RoPEFreqs(64, 160000, YaRN{Factor: 1})
	first := -1
	for i := range scaled {
		if scaled[i] != plain[i] && first < 0 {
			first = i
		}
		if first >= 0 {
			require.InEpsilon(t, float64(plain[i])/16, float64(scaled[i]), 1e-6, "pair %d", i)
		}
	}
	require.Positive(t, first)
}
