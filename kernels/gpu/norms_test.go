//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

func TestNorms(t *testing.T) {
	kerneltest.Run(t, open, "RMSNorm", "LayerNorm", "RoPE", "RoPE, normed", "Hadamard")
}

// device is n numbers of a normal distribution in memory of the backend.
func device(t *testing.T, b kernels.Backend, rng *rand.Rand, n int) []float32 {
	return kerneltest.OnDevice(t, b, kerneltest.Normal(rng, n, 1))
}

// TestLongHadamard is beyond what threadgroup memory holds.
func TestLongHadamard(t *testing.T) {
	for _, dim := range []int{1024, 4096, 8192, 32768} {
		b, rng := open(t), rand.New(rand.NewPCG(1, uint64(dim)))
		x := device(t, b, rng, 2*dim)
		want := append([]float32(nil), x...)
		b.Hadamard(x, 2, dim)
		require.NoError(t, b.Flush())
		reference.New().Hadamard(want, 2, dim)
		for i, v := range x {
			require.InDelta(t, want[i], v, 2e-6, "element %d of %d", i, dim)
		}
		require.NoError(t, b.Close())
	}
}

// TestAngles turns (1, 0) by angles of every size, among them floats next to
// multiples of a quarter turn, and compares with double precision.
func TestAngles(t *testing.T) {
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	var freqs []float32
	rng := rand.New(rand.NewPCG(7, 7))
	for e := -30.; e < 60; e += 0.25 {
		freqs = append(freqs, float32(math.Exp2(e)*(1+rng.Float64())), -float32(math.Exp2(e)*(1+rng.Float64())))
	}
	for k := 1.; k < 4e6; k = math.Ceil(k * 1.1) {
		f := float32(k * math.Pi / 2)
		freqs = append(freqs, f, math.Nextafter32(f, 0), math.Nextafter32(f, 1e9))
	}
	freqs = append(freqs, 0, math.MaxFloat32, 16367173*0x1p72, 1)
	n := len(freqs)
	x := kerneltest.OnDevice(t, b, make([]float32, 2*n))
	for i := range n {
		x[2*i] = 1
	}
	f, pos := kerneltest.OnDevice(t, b, freqs), kerneltest.OnDevice(t, b, []int32{1})
	b.RoPE(kernels.RoPEArgs{X: x, Pos: pos, Freqs: f, Rows: 1, Heads: 1, HeadDim: 2 * n, RotDim: 2 * n})
	require.NoError(t, b.Flush())
	for i, v := range freqs {
		sin, cos := math.Sincos(float64(v))
		require.InEpsilon(t, 2+cos, 2+float64(x[2*i]), 1e-7, "cos(%v)", v)
		require.LessOrEqual(t, math.Abs(float64(x[2*i+1])-sin), 1.5e-7*math.Abs(sin)+1e-12, "sin(%v) is %v, not %v", v, x[2*i+1], sin)
	}
}
