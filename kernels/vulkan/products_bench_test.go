//go:build linux && cgo

package vulkan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/vulkan"
)

// BenchmarkProducts multiplies matrices of 512 MB in all, more than caches hold, and
// prints the weights' GB/s, for one token and for more. "copy" is rows of F32 as
// embeddings, whose bytes are read and written. The device is the one that
// RINGMASTER_VULKAN_DEVICE names, or the one that Open chooses.
func BenchmarkProducts(b *testing.B) {
	for _, shape := range [][2]int{{4096, 4096}, {2048, 7168}} {
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.MXFP4, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ2XXS, gguf.IQ4XS} {
			for _, tokens := range []int{0, 1, 4, 8, 64, 512} {
				if (tokens == 0) != (typ == gguf.F32) {
					continue
				}
				name := fmt.Sprintf("%dx%d/%s/%d", shape[0], shape[1], typ, tokens)
				if tokens == 0 {
					name = fmt.Sprintf("%dx%d/copy", shape[0], shape[1])
				}
				b.Run(name, func(b *testing.B) { benchmarkProduct(b, typ, shape[0], shape[1], tokens) })
			}
		}
	}
}

func benchmarkProduct(b *testing.B, typ gguf.Type, rows, cols, tokens int) {
	device, err := vulkan.Open(vulkan.Options{})
	require.NoError(b, err)
	defer device.Close()
	data := kerneltest.Blocks(rand.New(rand.NewPCG(1, 2)), typ, rows*cols, 0.1)
	count := max(1, (512<<20)/len(data))
	pages, free := kerneltest.Pages(b, count*len(data))
	defer free()
	require.NoError(b, device.Map(pages))
	weights := make([]kernels.Weight, count)
	for i := range weights {
		at := i * len(data)
		weights[i] = kernels.Weight{Name: "w", Type: typ, Cols: cols, Rows: rows, Slices: 1, SliceBytes: len(data), Data: pages[at : at+copy(pages[at:], data)]}
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i)
	}
	all := kerneltest.OnDevice(b, device, ids)
	x := kerneltest.OnDevice(b, device, make([]float32, max(1, tokens)*cols))
	out := kerneltest.OnDevice(b, device, make([]float32, rows*max(tokens, cols)))
	multiply := func() {
		for _, w := range weights {
			if tokens == 0 {
				device.Embed(out, w, all)
			} else {
				device.MatMul(x, tokens, kernels.Product{W: w, Out: out[:tokens*rows]})
			}
		}
		require.NoError(b, device.Flush())
	}
	multiply() // compiles, and copies the weights
	bytes := float64(count * len(data))
	for b.Loop() {
		multiply()
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(bytes/seconds/1e9, "GB/s")
	if tokens > 1 {
		b.ReportMetric(2*float64(tokens)*float64(count*rows*cols)/seconds/1e12, "TFLOPS")
	}
}
