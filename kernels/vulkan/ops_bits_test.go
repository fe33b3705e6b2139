//go:build linux && cgo

package vulkan_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// Ops other than products and attention, by whether they have the CPU's bits.
var (
	// bitsOfLevels do not depend on how many lanes the CPU's vectors have.
	bitsOfLevels = []string{"Add", "Clear", "ToFloat16", "FromFloat16", "SumSlots", "SumExact", "RoundSums",
		"Gather", "CopyColumns", "Hadamard", "RoPE", "HCInit", "HCCollapse", "HCExpand", "StoreKV", "ExpertMask", "ExpertCompact"}
	// bitsOfAVX512 add squares in the order of 16 lanes.
	bitsOfAVX512 = []string{"RMSNorm", "RoPE, normed", "Compress"}
	// The others differ in the last places:
	//   - LayerNorm, HCMix, HCHead and HCGate are in doubles on the CPU, which few GPUs have
	//     in hardware; HCMix, HCHead and HCGate also add rows of up to 64K numbers in 64 chains, too few for a GPU;
	//   - Route takes exponentials and logarithms from the C library.
)

// onCPU opens kernels of the CPU at a level.
func onCPU(level cpu.Level) kerneltest.Open {
	return func(t testing.TB) kernels.Backend {
		b, err := cpu.NewLevel(2, level)
		require.NoError(t, err)
		return b
	}
}

// TestOpsOfTheCPU: elements, rotations, streams and caches have the CPU's bits at any level that has
// fused products and sums.
func TestOpsOfTheCPU(t *testing.T) {
	if cpu.Best() == cpu.Portable {
		t.Skip("NOT CHECKED: the portable kernels round products and sums separately")
	}
	kerneltest.Same(t, onCPU(cpu.Best()), shared, bitsOfLevels...)
}

// TestOpsOfAVX512: norms and entries of the cache have the bits of its AVX-512 kernels.
func TestOpsOfAVX512(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	if !slices.Contains(cpu.Levels(), cpu.AVX512) {
		t.Skip("NOT CHECKED: this host has no AVX-512")
	}
	kerneltest.Same(t, onCPU(cpu.AVX512), shared, bitsOfAVX512...)
}

// fused is a*b+c rounded once.
func fused(a, b, c float32) float32 {
	wide := func(x float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(x)) }
	product := wide(0).Mul(wide(a), wide(b))
	sum, _ := product.Add(product, wide(c)).Float32()
	return sum
}

// squares is the sum of squares in the order of sum_squares of kernels/cpu with vectors of 16.
func squares(x []float32) float32 {
	var chains [4][16]float32
	n := len(x)
	for i, v := range x {
		chain := 0
		switch {
		case i < n/64*64:
			chain = i % 64 / 16
		case i >= n/16*16:
			chain = 1
		}
		chains[chain][i%16] = fused(v, v, chains[chain][i%16])
	}
	var lanes [16]float32
	for l := range lanes {
		lanes[l] = (chains[0][l] + chains[1][l]) + (chains[2][l] + chains[3][l])
	}
	for m := 8; m > 0; m /= 2 {
		for l := range m {
			lanes[l] += lanes[l+m]
		}
	}
	return lanes[0]
}

// TestOrderOfNorms: a norm adds in the order of the AVX-512 kernels, on hosts without them too.
func TestOrderOfNorms(t *testing.T) {
	b := shared(t)
	const rows = 32 // another order often gives a row the same bits
	for _, cols := range []int{1, 15, 17, 63, 64, 100, 576, 1111} {
		x := kerneltest.Normal(rand.New(rand.NewPCG(1, uint64(cols))), rows*cols, 1)
		var want []float32
		for row := range slices.Chunk(x, cols) {
			scale := 1 / float32(math.Sqrt(float64(squares(row)/float32(cols)+1e-6)))
			for _, v := range row {
				want = append(want, v*scale)
			}
		}
		in, out := kerneltest.OnDevice(t, b, x), kerneltest.OnDevice(t, b, make([]float32, rows*cols))
		b.RMSNorm(out, in, nil, rows, cols, 1e-6)
		require.NoError(t, b.Flush())
		requireBits(t, fmt.Sprintf("%d columns", cols), kerneltest.Bits(want), kerneltest.Bits(out))
	}
}
