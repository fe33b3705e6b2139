//go:build cgo

package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

var _ kernels.Backend = (*cpu.Backend)(nil)

// dense reports whether weights of the type are multiplied by float32
// activations.
func dense(t gguf.Type) bool {
	switch t {
	case gguf.F32, gguf.F16, gguf.BF16, gguf.NVFP4, gguf.IQ1S, gguf.IQ1M, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S:
		return true
	}
	return false
}

func openLevel(t testing.TB, threads int, level cpu.Level) *cpu.Backend {
	t.Helper()
	b, err := cpu.NewLevel(threads, level)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func zeros(t testing.TB, b *cpu.Backend, n int) []float32 {
	t.Helper()
	return kerneltest.OnDevice(t, b, make([]float32, n))
}

// weight puts data into memory of the backend.
func weight(t testing.TB, b *cpu.Backend, typ gguf.Type, data []byte, slices, rows, cols int) kernels.Weight {
	t.Helper()
	mem, err := b.Alloc(len(data))
	require.NoError(t, err)
	copy(mem, data)
	return kernels.Weight{
		Name: fmt.Sprintf("%s[%d][%d][%d]", typ, slices, rows, cols), Type: typ,
		Cols: cols, Rows: rows, Slices: slices, SliceBytes: rows * typ.RowBytes(cols), Data: mem,
	}
}

// values is the matrix in float32, as package gguf dequantises it.
func values(t testing.TB, typ gguf.Type, data []byte, rows, cols int) []float32 {
	t.Helper()
	w := make([]float32, rows*cols)
	require.NoError(t, gguf.Dequantize(w, typ, data))
	return w
}

// multiply runs one MatMul and returns a copy of the result.
func multiply(t testing.TB, b *cpu.Backend, w kernels.Weight, x []float32, rows int) []float32 {
	t.Helper()
	out := zeros(t, b, rows*w.Rows)
	b.MatMul(x, rows, kernels.Product{W: w, Out: out})
	require.NoError(t, b.Flush())
	return slices.Clone(out)
}

// eachLevel runs f for every level of the host.
func eachLevel(t *testing.T, f func(t *testing.T, level cpu.Level)) {
	for _, level := range cpu.Levels() {
		t.Run(level.String(), func(t *testing.T) { f(t, level) })
	}
}
