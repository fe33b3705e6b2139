//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

func TestIndexTopK(t *testing.T) { kerneltest.Run(t, open, "IndexTopK") }

// TestIndexOfLongContexts has as many entries as a long context. The choice must be the
// reference's to the number, because the elements are small integers: their scores are
// exact in any order, and many are equal. The queries have few elements other than 0.
func TestIndexOfLongContexts(t *testing.T) {
	for _, shape := range []struct{ rows, entries, heads, topK int }{
		{1, 33001, 8, 1024}, {2, 900, 64, 512}, {2, 16385, 8, 1},
	} {
		b, rng := open(t), rand.New(rand.NewPCG(3, uint64(shape.entries)))
		const dim = 128
		a := kernels.IndexArgs{
			Q: device(t, b, rng, shape.rows*shape.heads*dim), HeadWeight: device(t, b, rng, shape.rows*shape.heads),
			Rows: shape.rows, Pos: 4*shape.entries - shape.rows, Heads: shape.heads, Dim: dim, TopK: shape.topK, Ratio: 4, Scale: 1,
		}
		for i := range a.Q {
			a.Q[i] = 0
			if rng.IntN(8) == 0 {
				a.Q[i] = float32(rng.IntN(7) - 3)
			}
		}
		for i := range a.HeadWeight {
			a.HeadWeight[i] = float32(rng.IntN(7) - 3)
		}
		var err error
		a.Cache, err = kernels.Make[uint16](b, shape.entries*dim)
		require.NoError(t, err)
		for i := range a.Cache {
			a.Cache[i] = float16.Fromfloat32(float32(rng.IntN(5) - 2)).Bits()
		}
		a.Selected, err = kernels.Make[int32](b, shape.rows*shape.topK)
		require.NoError(t, err)
		b.IndexTopK(a)
		require.NoError(t, b.Flush())
		got := slices.Clone(a.Selected)
		reference.New().IndexTopK(a)
		require.True(t, slices.Equal(a.Selected, got), "%+v", shape)
		require.NoError(t, b.Close())
	}
}
