package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// decoder turns one block of a type into its elements: dst holds
// BlockElements values, src BlockBytes bytes.
type decoder func(dst []float32, src []byte)

var decoders = map[Type]decoder{
	F32: decodeF32, F16: decodeF16, BF16: decodeBF16,
	Q4_0: decodeQ4_0, Q4_1: decodeQ4_1, Q5_0: decodeQ5_0, Q5_1: decodeQ5_1,
	Q8_0: decodeQ8_0, MXFP4: decodeMXFP4, NVFP4: decodeNVFP4, IQ4NL: decodeIQ4NL,
	Q2_K: decodeQ2K, Q3_K: decodeQ3K, Q4_K: decodeQ4K, Q5_K: decodeQ5K, Q6_K: decodeQ6K,
	IQ1S: decodeIQ1S, IQ1M: decodeIQ1M,
	IQ2XXS: decodeIQ2XXS, IQ2XS: decodeIQ2XS, IQ2S: decodeIQ2S,
	IQ3XXS: decodeIQ3XXS, IQ3S: decodeIQ3S, IQ4XS: decodeIQ4XS,
}

// Dequantize writes the float32 values of whole blocks of type t to dst.
//
// len(dst) must be a multiple of t.BlockElements() and len(src) exactly
// t.RowBytes(len(dst)). Every type of this package can be dequantised except I8 and I32, which
// hold no weights; other types and wrong lengths are errors and leave dst unchanged. Any
// bit pattern in src is valid: a scale that is infinite or NaN gives infinite or NaN
// elements.
//
// Products are rounded to float32 after each step, in the order of the formulas in the
// comments and without fused multiply-add, so that results are the same on every host.
// This is the plain reference for the kernels, not a fast path.
func Dequantize(dst []float32, t Type, src []byte) error {
	decode, ok := decoders[t]
	if !ok {
		return fmt.Errorf("cannot dequantise %s", t)
	}
	elements, size := t.BlockElements(), t.BlockBytes()
	if len(dst)%elements != 0 {
		return fmt.Errorf("%d elements of %s: not whole blocks of %d", len(dst), t, elements)
	}
	if want := t.RowBytes(len(dst)); len(src) != want {
		return fmt.Errorf("%d elements of %s need %d bytes, got %d", len(dst), t, want, len(src))
	}
	for b := range len(dst) / elements {
		decode(dst[b*elements:(b+1)*elements], src[b*size:(b+1)*size])
	}
	return nil
}

// loadF16 is the float16 at the start of b.
func loadF16(b []byte) float32 {
	return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32()
}

func decodeF32(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
}

func decodeF16(dst []float32, src []byte) { dst[0] = loadF16(src) }

func decodeBF16(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
}

// decodeQ8_0: d float16, q int8[32]; y = d*q.
func decodeQ8_0(dst []float32, src []byte) {
	d := loadF16(src)
	for i, q := range src[2:] {
		dst[i] = d * float32(int8(q))
	}
}

// decodeQ4_0: d float16, q 16 bytes (low nibbles are elements 0..15, high ones
// 16..31); y = d*(q-8).
func decodeQ4_0(dst []float32, src []byte) {
	d := loadF16(src)
	for i, b := range src[2:] {
		dst[i] = d * float32(int(b&15)-8)
		dst[16+i] = d * float32(int(b>>4)-8)
	}
}

// decodeQ4_1: d, m float16, q 16 bytes as Q4_0; y = d*q + m.
func decodeQ4_1(dst []float32, src []byte) {
	d, m := loadF16(src), loadF16(src[2:])
	for i, b := range src[4:] {
		dst[i] = float32(d*float32(b&15)) + m
		dst[16+i] = float32(d*float32(b>>4)) + m
	}
}

// decodeQ5_0: d float16, h uint32 (bit i is bit 4 of element i), q 16 bytes as
// Q4_0; y = d*(q-16).
func decodeQ5_0(dst []float32, src []byte) {
	d, high := loadF16(src), binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:] {
		dst[i] = d * float32(int(b&15)|int(high>>i&1)<<4-16)
		dst[16+i] = d * float32(int(b>>4)|int(high>>(16+i)&1)<<4-16)
	}
}

// decodeQ5_1: d, m float16, h uint32 as Q5_0, q 16 bytes; y = d*q + m.
func decodeQ5_1(dst []float32, src []byte) {
	d, m, high := loadF16(src), loadF16(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for i, b := range src[8:] {
		dst[i] = float32(d*float32(int(b&15)|int(high>>i&1)<<4)) + m
		dst[16+i] = float32(d*float32(int(b>>4)|int(high>>(16+i)&1)<<4)) + m
	}
}

// MXFP4Scale is 2^(e-128), the factor of the doubled values of MXFP4Values for
// the shared exponent byte e (E8M0). For e of 0 and 1 it is the subnormal
// 2^-128 and 2^-127. E8M0's NaN (255) is treated as the exponent 127, as GGML
// does.
func MXFP4Scale(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// decodeMXFP4: e (E8M0), q 16 bytes as Q4_0; y = 2^(e-128) * table[q].
func decodeMXFP4(dst []float32, src []byte) {
	d := MXFP4Scale(src[0])
	for i, b := range src[1:] {
		dst[i] = d * float32(MXFP4Values[b&15])
		dst[16+i] = d * float32(MXFP4Values[b>>4])
	}
}

// NVFP4Scale is half the value of a scale byte e of NVFP4, the factor of the doubled values of
// MXFP4Values. e is UE4M3: three bits of mantissa m, four of exponent x, a highest bit that
// means nothing. The value is (8+m) * 2^(x-10), or m * 2^-9 if x is 0. UE4M3's NaN (127) is
// treated as 0, as GGML does.
func NVFP4Scale(e uint8) float32 {
	exponent, mantissa := e>>3&15, float32(e&7)
	switch {
	case e == nvfp4NaN:
		return 0
	case exponent == 0:
		return mantissa * 0x1p-10
	}
	return (8 + mantissa) * math.Float32frombits(uint32(exponent+127-11)<<23)
}

// nvfp4NaN is the NaN of UE4M3.
const nvfp4NaN = 0x7f

// decodeNVFP4: d UE4M3[4], q 32 bytes, 8 for each 16 elements (low nibbles are the first 8);
// y = d/2 * table[q].
func decodeNVFP4(dst []float32, src []byte) {
	for i, b := range src[4:] {
		d, at := NVFP4Scale(src[i/8]), 16*(i/8)+i%8
		dst[at] = d * float32(MXFP4Values[b&15])
		dst[at+8] = d * float32(MXFP4Values[b>>4])
	}
}

// decodeIQ4NL: d float16, q 16 bytes as Q4_0; y = d*table[q].
func decodeIQ4NL(dst []float32, src []byte) {
	d := loadF16(src)
	for i, b := range src[2:] {
		dst[i] = d * float32(IQ4NLValues[b&15])
		dst[16+i] = d * float32(IQ4NLValues[b>>4])
	}
}
