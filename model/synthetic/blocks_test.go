package synthetic

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

// Each type's random blocks, read by package gguf, have mean 0 and the standard
// deviation asked for, also in every eighth of a block, because a sub-block without
// its bits would show there.
func TestBlocksHaveTheDeviation(t *testing.T) {
	for _, std := range []float64{1, 0.011} {
		for typ := range drawers {
			t.Run(typ.String(), func(t *testing.T) {
				const blocks = 3000
				data := make([]byte, blocks*typ.BlockBytes())
				require.NoError(t, newSource(7, typ.String()).blocks(data, typ, std))
				n := typ.BlockElements()
				x := make([]float32, blocks*n)
				require.NoError(t, gguf.Dequantize(x, typ, data))
				mean, rms := moments(x)
				require.InDelta(t, 0, mean/std, 0.05)
				require.InDelta(t, 1, rms/std, 0.05)
				if n < 8 {
					return
				}
				for part := range 8 {
					var own []float32
					for b := range blocks {
						own = append(own, x[b*n+part*n/8:b*n+(part+1)*n/8]...)
					}
					mean, rms := moments(own)
					require.InDelta(t, 0, mean/std, 0.1, "part %d", part)
					require.InDelta(t, 1, rms/std, 0.1, "part %d", part)
				}
			})
		}
	}
}

func moments(x []float32) (mean, rms float64) {
	for _, v := range x {
		mean += float64(v)
		rms += float64(v) * float64(v)
	}
	n := float64(len(x))
	return mean / n, math.Sqrt(rms / n)
}

func TestEveryComputableTypeHasRandomBlocks(t *testing.T) {
	for typ := gguf.Type(0); typ < 64; typ++ {
		require.Equal(t, typ.Weights(), CanMake(typ), typ.String())
	}
	require.ErrorContains(t, newSource(1, "x").blocks(make([]byte, 4), gguf.I32, 1), "I32")
}

func TestChunksDoNotShow(t *testing.T) {
	whole := make([]byte, 40*gguf.Q4_K.BlockBytes())
	require.NoError(t, newSource(3, "t").blocks(whole, gguf.Q4_K, 1))
	var parts bytes.Buffer
	s := newSource(3, "t")
	require.NoError(t, gaussian(s, &parts, gguf.Q4_K, 13, 1))
	require.NoError(t, gaussian(s, &parts, gguf.Q4_K, 27, 1))
	require.Equal(t, whole, parts.Bytes())
}
