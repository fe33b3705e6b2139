//go:build cgo

package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
)

// Names of levels can be parsed again, and the levels that may compute together
// are those with the same bits (TestMatMulBitEquality compares them).
func TestLevelNames(t *testing.T) {
	for _, l := range []cpu.Level{cpu.Portable, cpu.AVX2, cpu.AVX512, cpu.AMX, cpu.NEON} {
		parsed, err := cpu.ParseLevel(l.String())
		require.NoError(t, err)
		require.Equal(t, l, parsed)
		same := l
		if l == cpu.AMX {
			same = cpu.AVX512
		}
		require.Equal(t, same, l.SameBits())
	}
	best, err := cpu.ParseLevel("auto")
	require.NoError(t, err)
	require.Equal(t, cpu.Levels()[len(cpu.Levels())-1], best)
	_, err = cpu.ParseLevel("sse9")
	require.ErrorContains(t, err, "expected auto, portable, avx2, avx512, amx or neon")
}
