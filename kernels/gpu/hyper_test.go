//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

func TestHyperConnections(t *testing.T) {
	kerneltest.Run(t, open, "HCInit", "HCMix", "HCCollapse", "HCExpand", "HCHead", "HCGate")
}

// TestViewsOfSmallWeights: Fn and APE take several buffers each. On a real
// device they take one.
func TestViewsOfSmallWeights(t *testing.T) {
	t.Setenv("MTLSIM_MAX_BUFFER", "40960")
	b, rng := open(t), rand.New(rand.NewPCG(5, 5))
	defer func() { require.NoError(t, b.Close()) }()
	plain := reference.New()
	inDelta := func(want, got []float32) {
		t.Helper()
		for i, v := range want {
			require.InDelta(t, v, got[i], 2e-5, "element %d", i)
		}
	}

	const streams, cols, products = 4, 250, 24
	for _, rows := range []int{1, 4} {
		fn, _ := matrix(t, b, gguf.F32, products, streams*cols, kerneltest.Blocks(rng, gguf.F32, products*streams*cols, 1./16))
		a := kernels.HCMixArgs{
			H: device(t, b, rng, rows*streams*cols), Fn: fn, Base: device(t, b, rng, products), Scale: device(t, b, rng, 3),
			Pre: device(t, b, rng, rows*streams), Post: device(t, b, rng, rows*streams), Comb: device(t, b, rng, rows*streams*streams),
			Weights: device(t, b, rng, rows*streams), Norm: device(t, b, rng, cols), X: device(t, b, rng, rows*cols),
			Rows: rows, Streams: streams, Cols: cols, Iterations: 20, Eps: 1e-6, RMSEps: 1e-6,
		}
		b.HCMix(a)
		require.NoError(t, b.Flush())
		want := a
		want.Pre, want.Post, want.Comb = make([]float32, len(a.Pre)), make([]float32, len(a.Post)), make([]float32, len(a.Comb))
		want.X = make([]float32, len(a.X))
		plain.HCMix(want)
		inDelta(want.Pre, a.Pre)
		inDelta(want.Post, a.Post)
		inDelta(want.Comb, a.Comb)
		inDelta(want.X, a.X)
	}

	const ratio, dim, rows, ring = 64, 48, 20, 83
	ape, _ := matrix(t, b, gguf.F32, ratio, dim, kerneltest.Blocks(rng, gguf.F32, ratio*dim, 1./16))
	a := kernels.CompressArgs{
		KV: device(t, b, rng, rows*dim), Score: device(t, b, rng, rows*dim), APE: ape, Norm: device(t, b, rng, dim),
		RingKV: device(t, b, rng, ring*dim), RingScore: device(t, b, rng, ring*dim),
		Rows: rows, Pos: 32, Ratio: ratio, Dim: dim, RingRows: ring, Eps: 1e-6,
	}
	b.Compress(a)
	require.NoError(t, b.Flush())
	want := a
	want.RingKV, want.RingScore = make([]float32, ring*dim), make([]float32, ring*dim)
	plain.Compress(want)
	inDelta(want.RingKV[32*dim:52*dim], a.RingKV[32*dim:])
	inDelta(want.RingScore[32*dim:52*dim], a.RingScore[32*dim:])
}
