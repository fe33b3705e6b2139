package kerneltest

import (
	"encoding/binary"
	"math"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// scaleAt are the offsets in a block of the float16 values that scale it. Every
// other byte of a block may be arbitrary.
var scaleAt = map[gguf.Type][]int{
	gguf.Q4_0: {0}, gguf.Q4_1: {0, 2}, gguf.Q5_0: {0}, gguf.Q5_1: {0, 2}, gguf.Q8_0: {0}, gguf.IQ4NL: {0},
	gguf.Q2_K: {80, 82}, gguf.Q3_K: {108}, gguf.Q4_K: {0, 2}, gguf.Q5_K: {0, 2}, gguf.Q6_K: {208},
	gguf.IQ1S: {0}, gguf.IQ2XXS: {0}, gguf.IQ2XS: {0}, gguf.IQ2S: {0}, gguf.IQ3XXS: {0}, gguf.IQ3S: {0}, gguf.IQ4XS: {0},
	gguf.IQ1M: nil, gguf.MXFP4: nil,
}

// quantisedTypes are the block types, in a fixed order.
var quantisedTypes = []gguf.Type{
	gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.IQ4NL, gguf.MXFP4,
	gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K,
	gguf.IQ1S, gguf.IQ1M, gguf.IQ2XXS, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S, gguf.IQ4XS,
}

var plainTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16}

// weight is a stack of random matrices of the type. Their elements have about the given
// standard deviation (within an order of magnitude for block types).
func (m *mem) weight(typ gguf.Type, slices, rows, cols int, deviation float64) kernels.Weight {
	size := rows * typ.RowBytes(cols)
	require.Positive(m.t, size, "%s with %d columns", typ, cols)
	data := make([]byte, 0, slices*size)
	n := slices * rows * cols
	switch typ {
	case gguf.F32, gguf.F16, gguf.BF16:
		for _, v := range m.normal(n, deviation) {
			data = appendPlain(data, typ, v)
		}
	default:
		for range n / typ.BlockElements() {
			data = append(data, m.block(typ, deviation)...)
		}
	}
	return kernels.Weight{
		Name: "blk.0.test." + typ.String(), Type: typ, Cols: cols, Rows: rows, Slices: slices, SliceBytes: size, Data: m.mapping(data),
	}
}

// plain is a matrix of the given values in F32, F16 or BF16.
func (m *mem) plain(typ gguf.Type, rows, cols int, values []float32) kernels.Weight {
	var data []byte
	for _, v := range values {
		data = appendPlain(data, typ, v)
	}
	return kernels.Weight{
		Name: "blk.0.test." + typ.String(), Type: typ, Cols: cols, Rows: rows, Slices: 1, SliceBytes: len(data), Data: m.mapping(data),
	}
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

// block is one random block. Its scale is drawn from one to two times the
// standard deviation, divided by the largest quant of the type where that is
// large.
func (m *mem) block(typ gguf.Type, deviation float64) []byte {
	b := make([]byte, typ.BlockBytes())
	for i := range b {
		b[i] = byte(m.rng.UintN(256))
	}
	scale := float16.Fromfloat32(float32(deviation * (1 + m.rng.Float64()) / quantSize[typ])).Bits()
	for _, at := range scaleAt[typ] {
		binary.LittleEndian.PutUint16(b[at:], scale)
	}
	switch typ {
	case gguf.MXFP4: // a power of two: 2^(e-128) with quants up to 12
		b[0] = byte(128 + int(math.Round(math.Log2(deviation/6))))
	case gguf.IQ1M: // the float16 is in the top nibbles of the four words of scales
		for i := range 4 {
			at := 48 + 2*i
			word := binary.LittleEndian.Uint16(b[at:])&0x0fff | scale>>(4*i)<<12
			binary.LittleEndian.PutUint16(b[at:], word)
		}
	}
	return b
}

// quantSize is the typical magnitude of an element in a block with the scale 1.
var quantSize = map[gguf.Type]float64{
	gguf.Q4_0: 5, gguf.Q4_1: 8, gguf.Q5_0: 9, gguf.Q5_1: 16, gguf.Q8_0: 70, gguf.IQ4NL: 60, gguf.MXFP4: 1,
	gguf.Q2_K: 16, gguf.Q3_K: 40, gguf.Q4_K: 250, gguf.Q5_K: 500, gguf.Q6_K: 1200,
	gguf.IQ1S: 8, gguf.IQ1M: 8, gguf.IQ2XXS: 60, gguf.IQ2XS: 60, gguf.IQ2S: 60, gguf.IQ3XXS: 60, gguf.IQ3S: 100, gguf.IQ4XS: 1000,
}
