//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/kerneltest"
)

// TestHold: a weight gives the same bits in a buffer of its own, in one of Hold with others, and
// after that was replaced. Weights that share pages share a buffer, within the largest of the
// device; what is not used any more is released.
func TestHold(t *testing.T) {
	t.Setenv("MTLSIM_MAX_BUFFER", "131072")
	const rows, cols, weights = 45, 97, 8 // 17,460 bytes each: a page and a part
	size := gguf.F32.RowBytes(rows * cols)
	pages, free := kerneltest.Pages(t, weights*size)
	t.Cleanup(free)
	rng := rand.New(rand.NewPCG(7, 8))
	copy(pages, kerneltest.Blocks(rng, gguf.F32, weights*rows*cols, 1))
	b := open(t).(*gpu.Backend)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Map(pages))
	w := make([]kernels.Weight, weights)
	spans := make([]kernels.Span, weights)
	for i := range w {
		w[i] = kernels.Weight{Name: "w", Type: gguf.F32, Cols: cols, Rows: rows, Slices: 1, SliceBytes: size, Data: pages[i*size:][:size]}
		spans[i].Data = w[i].Data
	}
	x, err := kernels.Make[float32](b, cols)
	require.NoError(t, err)
	copy(x, kerneltest.Normal(rng, cols, 1))
	out, err := kernels.Make[float32](b, rows)
	require.NoError(t, err)
	multiply := func(i int) []uint32 {
		b.MatMul(x, 1, kernels.Product{W: w[i], Out: out})
		require.NoError(t, b.Flush())
		return kerneltest.Bits(out)
	}
	want := make([][]uint32, weights)
	for i := range w {
		want[i] = slices.Clone(multiply(i))
	}
	held, own := b.WeightBuffers()
	require.Equal(t, []int{0, weights}, []int{held, own})
	for _, c := range []struct {
		use       []int
		held, own int // own: of the others
	}{
		{[]int{0, 1, 2, 3, 4, 5, 6, 7}, 2, 0}, // the largest has seven pages
		{[]int{3, 2}, 1, 6},
		{[]int{2, 3, 2}, 1, 6},
		{[]int{0, 4, 7}, 3, 5},
		{nil, 0, 8},
		{[]int{6, 7}, 1, 6},
	} {
		var used []kernels.Span
		for _, i := range c.use {
			used = append(used, spans[i])
		}
		b.MatMul(x, 1, kernels.Product{W: w[1], Out: out}) // encoded, with a buffer that goes
		require.NoError(t, kernels.Hold(b, func() ([]kernels.Span, error) { return used, nil }))
		held, own = b.WeightBuffers()
		require.Equal(t, []int{c.held, 0}, []int{held, own}, "%v", c.use)
		for i := range w {
			require.Equal(t, want[i], multiply(i), "%v, weight %d", c.use, i)
		}
		held, own = b.WeightBuffers()
		require.Equal(t, []int{c.held, c.own}, []int{held, own}, "%v", c.use)
	}
	require.NoError(t, b.Map(pages[:len(pages)-size]))
	held, own = b.WeightBuffers()
	require.Zero(t, held+own, "of the mapping before")

	broken := errors.New("broken")
	require.ErrorIs(t, kernels.Hold(b, func() ([]kernels.Span, error) { return nil, broken }), broken)
	require.ErrorContains(t, kernels.Hold(b, func() ([]kernels.Span, error) { return spans, nil }), "not in memory registered by Map")
}
