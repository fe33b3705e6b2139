package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// OnDevice returns a copy of x in memory of the backend.
func OnDevice[T float32 | int32 | int64 | uint16](t testing.TB, b kernels.Backend, x []T) []T {
	t.Helper()
	y, err := kernels.Make[T](b, len(x))
	require.NoError(t, err)
	copy(y, x)
	return y
}

// Normal returns n numbers of a normal distribution with the given standard deviation.
func Normal(rng *rand.Rand, n int, deviation float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * deviation)
	}
	return x
}

// Bits returns the bits of x, so that equality compares every bit.
func Bits(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i, v := range x {
		bits[i] = math.Float32bits(v)
	}
	return bits
}

// RequireMisuse expects f to panic with a *kernels.Misuse of op and returns it.
func RequireMisuse(t testing.TB, op, why string, f func()) (m *kernels.Misuse) {
	t.Helper()
	defer func() {
		t.Helper()
		var ok bool
		m, ok = recover().(*kernels.Misuse)
		require.True(t, ok, "%s, %s: no *kernels.Misuse", op, why)
		require.Equal(t, op, m.Op, "%s: %s", why, m.Msg)
		require.NotEmpty(t, m.Msg, why)
	}()
	f()
	return nil
}

var plainTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16}

// Types are all types of weights.
var Types = append(plainTypes[:3:3],
	gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.IQ4NL, gguf.MXFP4, gguf.NVFP4,
	gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K,
	gguf.IQ1S, gguf.IQ1M, gguf.IQ2XXS, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S, gguf.IQ4XS)

// quantSize is the typical magnitude of an element in a block with the scale 1.
var quantSize = map[gguf.Type]float64{
	gguf.Q4_0: 5, gguf.Q4_1: 8, gguf.Q5_0: 9, gguf.Q5_1: 16, gguf.Q8_0: 70, gguf.IQ4NL: 60, gguf.MXFP4: 1,
	gguf.Q2_K: 16, gguf.Q3_K: 40, gguf.Q4_K: 250, gguf.Q5_K: 500, gguf.Q6_K: 1200,
	gguf.IQ1S: 8, gguf.IQ1M: 8, gguf.IQ2XXS: 60, gguf.IQ2XS: 60, gguf.IQ2S: 60, gguf.IQ3XXS: 60, gguf.IQ3S: 100, gguf.IQ4XS: 1000,
}

// Blocks returns n random weights of the type: blocks of arbitrary bits with scales of either
// sign. Elements have about the given standard deviation (within an order of magnitude
// for block types).
func Blocks(rng *rand.Rand, typ gguf.Type, n int, deviation float64) []byte {
	var data []byte
	if typ.BlockElements() == 1 {
		for _, v := range Normal(rng, n, deviation) {
			data = appendPlain(data, typ, v)
		}
		return data
	}
	for range n / typ.BlockElements() {
		data = append(data, block(rng, typ, deviation)...)
	}
	return data
}

func appendPlain(data []byte, typ gguf.Type, v float32) []byte {
	switch typ {
	case gguf.F16:
		return binary.LittleEndian.AppendUint16(data, float16.Fromfloat32(v).Bits())
	case gguf.BF16:
		return binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
	}
	return binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
}

// block returns one random block. A scale has one to two times the magnitude that gives the
// standard deviation.
func block(rng *rand.Rand, typ gguf.Type, deviation float64) []byte {
	b := make([]byte, typ.BlockBytes())
	for i := range b {
		b[i] = byte(rng.UintN(256))
	}
	scale := func() uint16 {
		v := deviation * (1 + rng.Float64()) / quantSize[typ]
		return float16.Fromfloat32(float32(math.Copysign(v, rng.Float64()-0.5))).Bits()
	}
	for _, at := range typ.HalfScales() {
		binary.LittleEndian.PutUint16(b[at:], scale())
	}
	switch typ {
	case gguf.MXFP4: // a power of two: 2^(e-128) with quants up to 12
		b[0] = byte(128 + int(math.Round(math.Log2(deviation/6))) - rng.IntN(3))
	case gguf.NVFP4: // scales of (8+m) * 2^(x-11) with quants up to 12; any of zero, subnormal and NaN at times
		for i := range b[:4] {
			x := 10 + int(math.Round(math.Log2(deviation/12))) - rng.IntN(3)
			b[i] = byte(min(max(x, 0), 15))<<3 | b[i]&7
			switch rng.IntN(32) {
			case 0:
				b[i] = 0
			case 1:
				b[i] = byte(rng.UintN(8))
			case 2:
				b[i] = 127
			}
		}
	case gguf.IQ1M: // the float16 is in the top nibbles of the four words of scales
		d := scale()
		for i := range 4 {
			at := 48 + 2*i
			binary.LittleEndian.PutUint16(b[at:], binary.LittleEndian.Uint16(b[at:])&0x0fff|d>>(4*i)<<12)
		}
	}
	return b
}
