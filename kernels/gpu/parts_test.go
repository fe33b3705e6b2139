//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/kerneltest"
)

// TestPartsOfOps: an op with a part that the op before it could do has the bits of the two, also
// where one dispatch does both.
func TestPartsOfOps(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const cols, height, heads, dim, pos = 1536, 40, 64, 128, 4000
	rows := kerneltest.Normal(rng, cols, 3)
	norm, queries := kerneltest.Normal(rng, cols, 1), kerneltest.Normal(rng, heads*dim, 1)
	keys, shares := kerneltest.Normal(rng, pos/4*dim, 1), kerneltest.Normal(rng, heads, 1)
	matrix := make([]byte, height*gguf.Q8_0.RowBytes(cols))
	require.NoError(t, gguftest.Quantize(matrix, gguf.Q8_0, kerneltest.Normal(rng, height*cols, 1)))

	// run computes all three ops, and counts their dispatches.
	run := func(apart bool) (products, attended []float32, selected []int32, dispatches int) {
		b := open(t).(*gpu.Backend)
		defer func() { require.NoError(t, b.Close()) }()
		floats := func(x []float32) []float32 { return kerneltest.OnDevice(t, b, slices.Clone(x)) }
		x, out := floats(rows), floats(make([]float32, height))
		pages, free := kerneltest.Pages(t, len(matrix))
		defer free()
		copy(pages, matrix)
		require.NoError(t, b.Map(pages))
		p := kernels.Product{W: kernels.Weight{Type: gguf.Q8_0, Rows: height, Cols: cols, Slices: 1, Data: pages[:len(matrix)]}, Out: out}
		weight := floats(norm)

		freqs, at := floats([]float32{1, 0.5, 0.1, 0.001}), kerneltest.OnDevice(t, b, []int32{pos})
		cache, err := kernels.Make[uint16](b, len(keys))
		require.NoError(t, err)
		b.ToFloat16(cache, floats(keys), len(keys))
		index := kernels.IndexArgs{
			Q: floats(queries), HeadWeight: floats(shares), Cache: cache, Selected: kerneltest.OnDevice(t, b, make([]int32, 100)),
			Freqs: freqs, Positions: at, RotDim: 8, Rows: 1, Pos: pos, Heads: heads, Dim: dim, TopK: 100, Ratio: 4, Scale: 0.01,
		}
		attend := kernels.AttendArgs{
			Q: floats(queries), Raw: cache, Out: floats(make([]float32, heads*dim)), Freqs: freqs, Positions: at, RotDim: 8, RotateQ: true, NormQ: true, Eps: 1e-6,
			Rows: 1, Pos: pos, Heads: heads / 2, HeadDim: 2 * dim, ValueDim: 2 * dim, Window: 400, RingRows: 500, Scale: 0.1,
		}
		require.NoError(t, b.Flush())
		before := b.Counts().Dispatches
		if apart {
			b.RMSNorm(x, x, weight, 1, cols, 1e-6)
			b.MatMul(x, 1, p)
			b.RoPE(index.Queries())
			index.Freqs = nil
			b.RoPE(attend.Queries())
			attend.RotateQ, attend.NormQ = false, false
		} else {
			b.NormMatMul(x, weight, 1e-6, 1, p)
		}
		b.IndexTopK(index)
		b.Attend(attend)
		require.NoError(t, b.Flush())
		return slices.Clone(out), slices.Clone(attend.Out), slices.Clone(index.Selected), b.Counts().Dispatches - before
	}
	products, attended, selected, dispatches := run(false)
	plain, plainAttended, plainSelected, more := run(true)
	require.Equal(t, dispatches+3, more)
	require.Equal(t, plain, products)
	require.Equal(t, plainAttended, attended)
	require.Equal(t, plainSelected, selected)
}
