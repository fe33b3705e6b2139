package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"ringmaster/gguf"
)

// Quantize writes src as whole blocks of type t to dst, for the types that need
// no search: F32, F16, BF16 and Q8_0. Any other type is an error, as is a
// len(src) that is not a multiple of t.BlockElements() or a len(dst) that is
// not t.RowBytes(len(src)).
//
// F16 and BF16 round to nearest, ties to even; a value beyond the range of F16
// becomes infinite. Q8_0 is GGML's: d = max|x|/127, q = x/d rounded to nearest,
// ties away from zero, with d stored as float16. A value that is infinite, NaN or
// too large for that d (above about 8.3 million) is an error.
func Quantize(dst []byte, t gguf.Type, src []float32) error {
	var encode func(dst []byte, src []float32) error
	switch t {
	case gguf.F32:
		encode = encodeF32
	case gguf.F16:
		encode = encodeF16
	case gguf.BF16:
		encode = encodeBF16
	case gguf.Q8_0:
		encode = encodeQ8_0
	default:
		return fmt.Errorf("cannot quantise to %s; F32, F16, BF16 and Q8_0 can be written", t)
	}
	elements, size := t.BlockElements(), t.BlockBytes()
	if len(src)%elements != 0 {
		return fmt.Errorf("%d elements of %s: not whole blocks of %d", len(src), t, elements)
	}
	if want := t.RowBytes(len(src)); len(dst) != want {
		return fmt.Errorf("%d elements of %s need %d bytes, got room for %d", len(src), t, want, len(dst))
	}
	for b := range len(src) / elements {
		if err := encode(dst[b*size:(b+1)*size], src[b*elements:(b+1)*elements]); err != nil {
			return fmt.Errorf("%s block %d: %w", t, b, err)
		}
	}
	return nil
}

func encodeF32(dst []byte, src []float32) error {
	binary.LittleEndian.PutUint32(dst, math.Float32bits(src[0]))
	return nil
}

func encodeF16(dst []byte, src []float32) error {
	binary.LittleEndian.PutUint16(dst, float16.Fromfloat32(src[0]).Bits())
	return nil
}

func encodeBF16(dst []byte, src []float32) error {
	x := math.Float32bits(src[0])
	if src[0] != src[0] {
		x |= 1 << 22 // stays NaN when the low bits are truncated
	} else {
		x += 0x7fff + x>>16&1
	}
	binary.LittleEndian.PutUint16(dst, uint16(x>>16))
	return nil
}

func encodeQ8_0(dst []byte, src []float32) error {
	var largest float32
	for i, x := range src {
		if x != x || math.IsInf(float64(x), 0) {
			return fmt.Errorf("element %d is %v", i, x)
		}
		largest = max(largest, float32(math.Abs(float64(x))))
	}
	d := largest / 127
	stored := float16.Fromfloat32(d)
	if stored.IsInf(0) {
		return fmt.Errorf("the scale of a largest value of %v is beyond the range of float16", largest)
	}
	clear(dst)
	if stored.Bits() == 0 {
		return nil // so small that every value is zero
	}
	binary.LittleEndian.PutUint16(dst, stored.Bits())
	inverse := 1 / d
	for i, x := range src {
		q := math.Round(float64(x * inverse))
		dst[2+i] = byte(int8(q)) // |q| ≤ 127: |x*inverse| is at most 127 and a rounding error
	}
	return nil
}
