//go:build cgo

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Names of levels can be parsed again, and the levels that may compute together
// are those with the same bits (TestMatMulBitEquality compares them).
func TestLevelNames(t *testing.T) {
	for _, l := range all {
		parsed, err := ParseLevel(l.String())
		require.NoError(t, err)
		require.Equal(t, l, parsed)
		same := l
		if l == AMX {
			same = AVX512
		}
		require.Equal(t, same, l.SameBits())
	}
	best, err := ParseLevel("auto")
	require.NoError(t, err)
	require.Equal(t, Levels()[len(Levels())-1], best)
	_, err = ParseLevel("sse9")
	require.ErrorContains(t, err, "expected auto, portable, avx2, avx512, amx or neon")
}
