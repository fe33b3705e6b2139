//go:build cgo

package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
)

var _ kernels.Backend = (*cpu.Backend)(nil)

// computable lists every type that the backend multiplies.
var computable = []gguf.Type{
	gguf.F32, gguf.F16, gguf.BF16,
	gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.IQ4NL, gguf.MXFP4,
	gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ2XXS, gguf.IQ4XS,
	gguf.IQ1S, gguf.IQ1M, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S,
}

// dense reports whether weights of the type are multiplied by float32
// activations.
func dense(t gguf.Type) bool {
	switch t {
	case gguf.F32, gguf.F16, gguf.BF16, gguf.IQ1S, gguf.IQ1M, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S:
		return true
	}
	return false
}

// halfFields are the offsets of the float16 scales in a block.
var halfFields = map[gguf.Type][]int{
	gguf.Q8_0: {0}, gguf.Q4_0: {0}, gguf.Q4_1: {0, 2}, gguf.Q5_0: {0}, gguf.Q5_1: {0, 2}, gguf.IQ4NL: {0},
	gguf.Q2_K: {80, 82}, gguf.Q3_K: {108}, gguf.Q4_K: {0, 2}, gguf.Q5_K: {0, 2}, gguf.Q6_K: {208},
	gguf.IQ2XXS: {0}, gguf.IQ2XS: {0}, gguf.IQ2S: {0}, gguf.IQ3XXS: {0}, gguf.IQ3S: {0}, gguf.IQ1S: {0}, gguf.IQ4XS: {0},
}

func openLevel(t testing.TB, threads int, level cpu.Level) *cpu.Backend {
	t.Helper()
	b, err := cpu.NewLevel(threads, level)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// floats copies x to memory of the backend.
func floats(t testing.TB, b *cpu.Backend, x []float32) []float32 {
	t.Helper()
	y, err := kernels.Make[float32](b, len(x))
	require.NoError(t, err)
	copy(y, x)
	return y
}

func zeros(t testing.TB, b *cpu.Backend, n int) []float32 {
	t.Helper()
	y, err := kernels.Make[float32](b, n)
	require.NoError(t, err)
	return y
}

func ints(t testing.TB, b *cpu.Backend, x []int32) []int32 {
	t.Helper()
	y, err := kernels.Make[int32](b, len(x))
	require.NoError(t, err)
	copy(y, x)
	return y
}

func noise(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// blocks returns n rows of random blocks: arbitrary bits, but scales of
// realistic size.
func blocks(r *rand.Rand, typ gguf.Type, rows, cols int) []byte {
	data := make([]byte, rows*typ.RowBytes(cols))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	size := typ.BlockBytes()
	for at := 0; at < len(data); at += size {
		b := data[at : at+size]
		scale := float32(r.NormFloat64()) * 0.02
		half := float16.Fromfloat32(scale).Bits()
		switch typ {
		case gguf.F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(scale))
		case gguf.F16:
			binary.LittleEndian.PutUint16(b, half)
		case gguf.BF16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(scale)>>16))
		case gguf.MXFP4:
			b[0] = byte(118 + r.IntN(8))
		case gguf.IQ1M:
			for i := range 4 {
				b[48+2*i+1] = b[48+2*i+1]&15 | byte(half>>(4*i))<<4
			}
		}
		for _, f := range halfFields[typ] {
			binary.LittleEndian.PutUint16(b[f:], float16.Fromfloat32(float32(r.NormFloat64())*0.02).Bits())
		}
	}
	return data
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

// bits returns the bits of x, so that equality compares every bit.
func bits(x []float32) []uint32 {
	y := make([]uint32, len(x))
	copy(y, unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)))
	return y
}

// multiply runs one MatMul and returns a copy of the result.
func multiply(t testing.TB, b *cpu.Backend, w kernels.Weight, x []float32, rows int) []float32 {
	t.Helper()
	out := zeros(t, b, rows*w.Rows)
	b.MatMul(x, rows, kernels.Product{W: w, Out: out})
	require.NoError(t, b.Flush())
	return append([]float32(nil), out...)
}

// eachLevel runs f for every level of the host.
func eachLevel(t *testing.T, f func(t *testing.T, level cpu.Level)) {
	for _, level := range cpu.Levels() {
		t.Run(level.String(), func(t *testing.T) { f(t, level) })
	}
}
