//go:build linux && cgo

package vulkan_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// openCPU opens the kernels that are the judge of bits, at the host's best level.
func openCPU(t testing.TB) kernels.Backend {
	b, err := cpu.New(2)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// mapped copies weights to pages that both backends know.
func mapped(t testing.TB, data []byte, backends ...kernels.Backend) []byte {
	pages, free := kerneltest.Pages(t, len(data)+16)
	t.Cleanup(free)
	n := 8 + copy(pages[8:], data)
	for _, b := range backends {
		require.NoError(t, b.Map(pages))
	}
	return pages[8:n:n]
}

// scales are n factors of products on pages that both backends know.
func scales(t testing.TB, rng *rand.Rand, n int, backends ...kernels.Backend) []float32 {
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(rng.Float32()-0.5))
	}
	data = mapped(t, data, backends...)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), n)
}

// activations are numbers of very different sizes, with a group of zeros and one so small
// that it counts as zero.
func activations(rng *rand.Rand, rows, cols int) []float32 {
	x := kerneltest.Normal(rng, rows*cols, 1)
	for i := range x {
		switch i / 32 % 13 {
		case 3:
			x[i] *= 1e-20
		case 5:
			x[i] *= 1e18
		case 7:
			x[i] = 0
		case 11:
			x[i] *= 1e-36
		}
	}
	return x
}

// types are those that the tests try: compiling kernels for a CPU takes seconds for each, so
// the fast form tries some.
func types(t *testing.T, some ...gguf.Type) []gguf.Type {
	if testenv.Rest(t, testenv.Full, "products of the other types") {
		return kerneltest.Types
	}
	return some
}

// TestProductsOfTheCPU: products, and rows as embeddings, have the CPU's bits, for all types and for one token, few
// and many.
func TestProductsOfTheCPU(t *testing.T) {
	host, device := openCPU(t), shared(t)
	for _, typ := range types(t, gguf.F16, gguf.Q8_0, gguf.Q4_K, gguf.IQ3S, gguf.NVFP4) {
		t.Run(typ.String(), func(t *testing.T) {
			for _, s := range []struct{ rows, cols, slices, tokens int }{
				{35, 288, 1, 1}, {5, 32, 1, 2}, {17, 544, 1, 4}, {33, 256, 2, 7}, {38, 544, 1, 9}, {36, 288, 2, 33},
			} {
				cols := s.cols
				if block := typ.BlockElements(); cols%block != 0 {
					cols = block * (1 + cols/block)
				}
				rng := rand.New(rand.NewPCG(uint64(typ), uint64(cols)))
				data := kerneltest.Blocks(rng, typ, s.slices*s.rows*cols, 0.1)
				w := kernels.Weight{Name: "w", Type: typ, Cols: cols, Rows: s.rows, Slices: s.slices, SliceBytes: len(data) / s.slices}
				w.Data = mapped(t, data, host, device)
				scaled := w
				scaled.Scales = scales(t, rng, 1, host, device)
				x := activations(rng, s.tokens, s.slices*cols)
				var bits [2][]uint32
				for i, b := range []kernels.Backend{host, device} {
					in, out := kerneltest.OnDevice(t, b, x), kerneltest.OnDevice(t, b, make([]float32, s.tokens*s.slices*s.rows))
					ids, rows := kerneltest.OnDevice(t, b, []int32{int32(s.rows - 1), 0}), kerneltest.OnDevice(t, b, make([]float32, 2*cols))
					b.MatMulGrouped(out, in, s.tokens, w)
					by := kerneltest.OnDevice(t, b, make([]float32, len(out)))
					b.MatMulGrouped(by, in, s.tokens, scaled)
					b.Embed(rows, w.SliceRange(0, 1), ids)
					require.NoError(t, b.Flush())
					bits[i] = slices.Concat(kerneltest.Bits(out), kerneltest.Bits(rows), kerneltest.Bits(by))
				}
				requireBits(t, fmt.Sprintf("%dx%d, %d slices, %d tokens", s.rows, cols, s.slices, s.tokens), bits[0], bits[1])
			}
		})
	}
}

// requireBits compares results, and counts those that differ.
func requireBits(t *testing.T, what string, want, got []uint32) {
	t.Helper()
	differ, first := 0, -1
	for i := range want {
		if want[i] != got[i] {
			if differ++; first < 0 {
				first = i
			}
		}
	}
	if differ > 0 {
		t.Errorf("%s: %d of %d results differ, first number %d: %#x in place of %#x", what, differ, len(want), first, got[first], want[first])
	}
}

// TestExpertsOfTheCPU: so have those of routed experts, with few slots for an expert and with
// many.
func TestExpertsOfTheCPU(t *testing.T) {
	host, device := openCPU(t), shared(t)
	for _, typ := range types(t, gguf.F16, gguf.Q8_0, gguf.NVFP4) {
		t.Run(typ.String(), func(t *testing.T) {
			for _, rows := range []int{2, 41} {
				experts, used, width, cols := 5, 2, 36, 256
				rng := rand.New(rand.NewPCG(uint64(typ), uint64(rows)))
				stack := func() kernels.Weight {
					data := kerneltest.Blocks(rng, typ, experts*width*cols, 0.1)
					return kernels.Weight{Name: "w", Type: typ, Cols: cols, Rows: width, Slices: experts, SliceBytes: len(data) / experts, Data: mapped(t, data, host, device)}
				}
				gate, up := stack(), stack()
				gates, ups := gate, up
				gates.Scales, ups.Scales = scales(t, rng, 1, host, device), scales(t, rng, experts, host, device)
				offsets, slots, weights := groups(rng, rows, used, experts)
				x := activations(rng, rows, cols)
				var bits, downs [2][]uint32
				for i, b := range []kernels.Backend{host, device} {
					a := kernels.ExpertArgs{Rows: rows, Used: used, Experts: experts, Start: 1, End: experts,
						Groups: kernels.ExpertGroups{Offsets: kerneltest.OnDevice(t, b, offsets), Slots: kerneltest.OnDevice(t, b, slots)}, Weights: kerneltest.OnDevice(t, b, weights)}
					in, mid := kerneltest.OnDevice(t, b, x), kerneltest.OnDevice(t, b, make([]float32, rows*used*width))
					b.ExpertGateUp(mid, in, gate, up, 10, a)
					// Down takes rows of its own, because its columns are whole blocks.
					wide, out := kerneltest.OnDevice(t, b, activations(rand.New(rand.NewPCG(1, 1)), rows*used, cols)), kerneltest.OnDevice(t, b, make([]float32, rows*used*width))
					b.ExpertDown(out, wide, up, a)
					by, ofUps := kerneltest.OnDevice(t, b, make([]float32, len(mid))), kerneltest.OnDevice(t, b, make([]float32, len(out)))
					b.ExpertGateUp(by, in, gates, ups, 10, a)
					b.ExpertDown(ofUps, wide, ups, a)
					require.NoError(t, b.Flush())
					bits[i], downs[i] = append(kerneltest.Bits(mid), kerneltest.Bits(by)...), append(kerneltest.Bits(out), kerneltest.Bits(ofUps)...)
				}
				requireBits(t, fmt.Sprintf("gate and up, %d rows", rows), bits[0], bits[1])
				requireBits(t, fmt.Sprintf("down, %d rows", rows), downs[0], downs[1])
			}
		})
	}
}

// groups routes rows to experts, the first ones more often. Some slots have no weight.
func groups(rng *rand.Rand, rows, used, experts int) (offsets, slots []int32, weights []float32) {
	of := make([][]int32, experts)
	for row := range rows {
		first := rng.IntN(2) // of the row's experts, all different
		for u := range used {
			e := (first + u*(1+rng.IntN(2))) % experts
			of[e] = append(of[e], int32(row*used+u))
		}
	}
	offsets = []int32{0}
	for _, s := range of {
		slots = append(slots, s...)
		offsets = append(offsets, int32(len(slots)))
	}
	for i := range int32(rows * used) {
		weights = append(weights, rng.Float32())
		if i%17 == 3 || slices.Contains(of[0], i) { // expert 0 is remote
			weights[i] = 0
		}
	}
	return offsets, slots, weights
}
