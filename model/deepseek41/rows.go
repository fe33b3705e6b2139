package deepseek41

import (
	"fmt"
	"math"

	"ringmaster/gguf"
)

// decodeRow writes the values of a row of a table. Its error says which value is not a finite
// number.
func decodeRow(dst []float32, encoding string, t gguf.Type, row []byte) error {
	switch encoding {
	case encodingE4M3:
		decodeE4M3(dst, row)
	case encodingLloyd4:
		decodeLloyd4(dst, row)
	default:
		if err := gguf.Dequantize(dst, t, row); err != nil {
			return err
		}
	}
	for i, v := range dst {
		if v-v != 0 {
			return fmt.Errorf("value %d is %v: %w", i, v, gguf.ErrNonFinite)
		}
	}
	return nil
}

// decodeE4M3: a code of E4M3FN for each value, then a scale 2^(s-127) for each 32. Code 127
// of either sign and scale 255 are NaN.
func decodeE4M3(dst []float32, row []byte) {
	scales := row[len(dst):]
	for i := range dst {
		scale := scales[i/32]
		if row[i]&127 == 127 || scale == 255 {
			dst[i] = float32(math.NaN())
			continue
		}
		dst[i] = float32(math.Ldexp(e4m3[row[i]], int(scale)-127))
	}
}

// e4m3 are the values of the codes of E4M3FN.
var e4m3 = func() (values [256]float64) {
	for code := range values {
		exponent, mantissa := code>>3&15, float64(code&7)
		v := math.Ldexp(mantissa, -9)
		if exponent > 0 {
			v = math.Ldexp(8+mantissa, exponent-10)
		}
		if code&128 != 0 {
			v = -v
		}
		values[code] = v
	}
	return values
}()

// lloyd4 is the codebook of the 4-bit rows.
var lloyd4 = [8]float32{0, 0.095, 0.1901, 0.2944, 0.4126, 0.5586, 0.7484, 1}

// decodeLloyd4: a sign and an index of the codebook in 4 bits for each value, the even ones
// in the low bits, then a scale of 5 bits of exponent and 3 of mantissa for each 32. Values
// are rounded to bfloat16.
func decodeLloyd4(dst []float32, row []byte) {
	scales := row[len(dst)/2:]
	for i := range dst {
		code := row[i/2] >> (4 * (i % 2)) & 15
		b := scales[i/32]
		scale := float32(math.Ldexp(float64(8+b&7)/16, int(b>>3)-16))
		v := bfloat16(lloyd4[code&7] * scale)
		if code&8 != 0 {
			v = -v
		}
		dst[i] = v
	}
}

// bfloat16 is x rounded to bfloat16, to nearest, ties to even.
func bfloat16(x float32) float32 {
	bits := math.Float32bits(x)
	bits += 0x7fff + bits>>16&1
	return math.Float32frombits(bits &^ 0xffff)
}

// layerTensor is the name of a tensor of a layer.
func layerTensor(layer int, name string) string { return fmt.Sprintf("blk.%d.%s", layer, name) }

// key names a row of a table. The order of keys is that of the rows on disk.
func key(table int, row uint64) uint64 { return uint64(table)<<rowBits | row }

// rowBits is how many bits of a key are the number of a row.
const rowBits = 56
