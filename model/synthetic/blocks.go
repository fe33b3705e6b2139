package synthetic

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/x448/float16"

	"ringmaster/gguf"
)

// spread is how far the scale of a block deviates from its mean. The factor is uniform in
// 1±spread, so that tests detect a kernel that uses a neighbour's scale. spreadRMS is the
// root mean square of that factor.
const spread = 0.4

var spreadRMS = math.Sqrt(1 + spread*spread/3)

// source draws the random numbers of one tensor. It depends on the seed and the tensor's
// name alone, so that tensors can be made in any order, or concurrently.
type source struct{ *rand.Rand }

func newSource(seed uint64, name string) source {
	h := fnv.New64a()
	io.WriteString(h, name) // a hash never fails
	return source{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// bytes fills b with random bits.
func (s source) bytes(b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, s.Uint64())
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], s.Uint64())
		copy(b, last[:])
	}
}

// scale draws the scale of a block that should have the standard deviation std; its
// elements have the standard deviation unit at scale 1. The sign is random, because that
// centres the types with codes that are not symmetric about zero.
func (s source) scale(std, unit float64) float64 {
	d := std / (unit * spreadRMS) * (1 - spread + 2*spread*s.Float64())
	if s.Uint64()&1 == 1 {
		return -d
	}
	return d
}

// putFloat16 stores v, rounded to float16.
func putFloat16(b []byte, v float64) {
	binary.LittleEndian.PutUint16(b, float16.Fromfloat32(float32(v)).Bits())
}

// blocks fills b, whole blocks of type t, with random elements of mean 0 and standard
// deviation std. Floating-point types are Gaussian. For quantised types the codes are
// drawn and the scale is set, so that nothing is quantised.
func (s source) blocks(b []byte, t gguf.Type, std float64) error {
	draw, ok := drawers[t]
	if !ok {
		return fmt.Errorf("cannot make random weights of type %s", t)
	}
	n := t.BlockBytes()
	for ; len(b) > 0; b = b[n:] {
		draw(s, b[:n:n], std)
	}
	return nil
}

// CanMake reports whether random weights of type t can be made.
func CanMake(t gguf.Type) bool { return drawers[t] != nil }

// drawers make one random block each. The layouts are GGML's (ggml-common.h,
// dequantize_row_* in ggml-quants.c); the value of an element is given next to
// each, for codes q, sub-block scales s and mins m, and scales d, dmin.
var drawers = map[gguf.Type]func(s source, b []byte, std float64){
	gguf.F32: func(s source, b []byte, std float64) {
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(std*s.NormFloat64())))
	},
	gguf.F16: func(s source, b []byte, std float64) { putFloat16(b, std*s.NormFloat64()) },
	gguf.BF16: func(s source, b []byte, std float64) {
		binary.LittleEndian.PutUint16(b, bfloat16(float32(std*s.NormFloat64())))
	},
	gguf.Q4_0:   simple(uniformRMS(0, 15, 8)),  // d*(q-8)
	gguf.Q5_0:   simple(uniformRMS(0, 31, 16)), // d*(q-16), high bits in 4 bytes
	gguf.Q4_1:   offset(uniformRMS(0, 15, 7.5), 7.5),
	gguf.Q5_1:   offset(uniformRMS(0, 31, 15.5), 15.5),
	gguf.IQ4NL:  simple(tableRMS(gguf.IQ4NLValues[:])), // d*table[q]
	gguf.Q8_0:   drawQ8_0,
	gguf.Q2_K:   drawQ2K,
	gguf.Q3_K:   drawQ3K,
	gguf.Q4_K:   kQuant(7.5, uniformRMS(0, 15, 7.5)),
	gguf.Q5_K:   kQuant(15.5, uniformRMS(0, 31, 15.5)),
	gguf.Q6_K:   drawQ6K,
	gguf.IQ2XXS: simple(halfStepRMS / 4 * gridRMS(gguf.IQ2XXSGrid[:])), // d*(0.5+s)/4*grid
	gguf.IQ2XS:  simple(halfStepRMS / 4 * gridRMS(gguf.IQ2XSGrid[:])),  // d*(0.5+s)/4*grid
	gguf.IQ2S:   simple(halfStepRMS / 4 * gridRMS(gguf.IQ2SGrid[:])),   // d*(0.5+s)/4*grid
	gguf.IQ3XXS: simple(halfStepRMS / 2 * gridRMS(gguf.IQ3XXSGrid[:])), // d*(0.5+s)/2*grid
	gguf.IQ3S:   simple(halfStepRMS * 2 * gridRMS(gguf.IQ3SGrid[:])),   // d*(1+2s)*grid
	gguf.IQ1S:   simple(oddRMS * iq1RMS),                               // d*(1+2s)*(grid±1/8)
	gguf.IQ1M:   drawIQ1M,
	gguf.IQ4XS:  simple(uniformRMS(0, 63, 32) * tableRMS(gguf.IQ4NLValues[:])), // d*(s-32)*table[q]
	gguf.MXFP4:  drawMXFP4,
	gguf.NVFP4:  drawNVFP4,
}

// The root mean squares of the sub-block scales of the codebook types.
var (
	halfStepRMS = uniformRMS(0, 15, -0.5)    // 0.5+s for s of 4 bits
	oddRMS      = 2 * uniformRMS(0, 7, -0.5) // 1+2s for s of 3 bits
	iq1RMS      = math.Sqrt(square(gridRMS(gguf.IQ1SGrid[:])) + 1./64)
)

func square(x float64) float64 { return x * x }

// uniformRMS is the root mean square of q-centre for integers q from lo to hi.
func uniformRMS(lo, hi int, centre float64) float64 {
	sum := 0.
	for q := lo; q <= hi; q++ {
		sum += square(float64(q) - centre)
	}
	return math.Sqrt(sum / float64(hi-lo+1))
}

func tableRMS(values []int8) float64 {
	sum := 0.
	for _, v := range values {
		sum += square(float64(v))
	}
	return math.Sqrt(sum / float64(len(values)))
}

// gridRMS is the root mean square of grids with 4 or 8 signed bytes per entry.
func gridRMS[E uint32 | uint64](grid []E) float64 {
	var values []int8
	for _, e := range grid {
		for i := range binary.Size(e) {
			values = append(values, int8(e>>(8*i)))
		}
	}
	return tableRMS(values)
}

// simple is a block that begins with its scale d; every pattern of the other
// bits is valid, and the elements then have the standard deviation unit·d.
func simple(unit float64) func(source, []byte, float64) {
	return func(s source, b []byte, std float64) {
		s.bytes(b[2:])
		putFloat16(b, s.scale(std, unit))
	}
}

// offset is a block of d, m and codes: d*q + m, with m = -centre*d.
func offset(unit, centre float64) func(source, []byte, float64) {
	return func(s source, b []byte, std float64) {
		s.bytes(b[4:])
		d := s.scale(std, unit)
		putFloat16(b, d)
		putFloat16(b[2:], -centre*d)
	}
}

// q8RMS is the root mean square of the codes -127 to 127, with -128 replaced by
// 0.
var q8RMS = uniformRMS(-127, 127, 0) * math.Sqrt(255./256)

// noLowest replaces -128, which no quantiser writes, by 0.
func noLowest(b []byte) {
	for i, q := range b {
		if q == 0x80 {
			b[i] = 0
		}
	}
}

// drawQ8_0: d*q, q of 8 bits.
func drawQ8_0(s source, b []byte, std float64) {
	s.bytes(b[2:])
	noLowest(b[2:])
	putFloat16(b, s.scale(std, q8RMS))
}

// drawQ2K: d*s*q - dmin*m with s, m of 4 bits (low, high nibble of a byte), q
// of 2. s and m are drawn from 6 to 15, dmin = 1.5 d centres the elements.
func drawQ2K(s source, b []byte, std float64) {
	s.bytes(b[:80])
	for i, v := range b[:16] {
		b[i] = (6 + v&15*10/16) | (6+v>>4*10/16)<<4
	}
	d := math.Abs(s.scale(std, q2kRMS))
	putFloat16(b[80:], d)
	putFloat16(b[82:], 1.5*d)
}

// q2kRMS is computed with the mapping of drawQ2K: 16 equally likely nibbles.
var q2kRMS = func() float64 {
	mean, ms := 0., 0.
	for v := range 16 {
		x := float64(6 + v*10/16)
		mean, ms = mean+x/16, ms+x*x/16
	}
	return math.Sqrt(ms*square(uniformRMS(0, 3, 1.5)) + 2*1.5*1.5*(ms-mean*mean))
}()

// drawQ3K: d*(s-32)*(q-4), s of 6 bits, q of 3. Every pattern is valid.
func drawQ3K(s source, b []byte, std float64) {
	s.bytes(b[:108])
	putFloat16(b[108:], s.scale(std, uniformRMS(0, 63, 32)*uniformRMS(0, 7, 4)))
}

// kQuant is Q4_K or Q5_K: d*s*q - dmin*m with s, m of 6 bits for 8 sub-blocks.
// s and m are drawn from 20 to 63, dmin = centre*d centres the elements.
func kQuant(centre, codeRMS float64) func(source, []byte, float64) {
	mean := (20. + 63) / 2
	ms := square(uniformRMS(20, 63, 0))
	unit := math.Sqrt(ms*codeRMS*codeRMS + 2*centre*centre*(ms-mean*mean))
	return func(s source, b []byte, std float64) {
		s.bytes(b[16:])
		d := math.Abs(s.scale(std, unit))
		putFloat16(b, d)
		putFloat16(b[2:], centre*d)
		// Sub-blocks 0..3 have their 6 bits in bytes 0..3 (scales) and 4..7
		// (mins); of 4..7 the low four bits are in bytes 8..11 and the high two
		// above those of 0..3.
		for i := range 4 {
			bits := s.Uint64()
			draw := func() byte {
				v := 20 + byte(bits&0xffff*44>>16)
				bits >>= 16
				return v
			}
			s0, m0, s4, m4 := draw(), draw(), draw(), draw()
			b[4+i] = s0 | s4>>4<<6
			b[8+i] = m0 | m4>>4<<6
			b[12+i] = s4&15 | m4&15<<4
		}
	}
}

// drawQ6K: d*s*(q-32), s a signed byte, q of 6 bits.
func drawQ6K(s source, b []byte, std float64) {
	s.bytes(b[:208])
	noLowest(b[192:208])
	putFloat16(b[208:], s.scale(std, q8RMS*uniformRMS(0, 63, 32)))
}

// drawIQ1M: d*(1+2s)*(grid±1/8); d is spread over the high four bits of the
// four 16-bit words of scales at byte 48.
func drawIQ1M(s source, b []byte, std float64) {
	s.bytes(b)
	d := float16.Fromfloat32(float32(s.scale(std, oddRMS*iq1RMS))).Bits()
	for i := range 4 {
		high := &b[48+2*i+1]
		*high = *high&0x0f | byte(d>>(4*i)&0xf)<<4
	}
}

// drawMXFP4: 2^(e-127) * {0, .5, 1, 1.5, 2, 3, 4, 6} with a sign. The scale is
// a power of two: blocks use the one below std or the one above, in the
// proportion that gives the standard deviation.
func drawMXFP4(s source, b []byte, std float64) {
	s.bytes(b[1:])
	want := std / (tableRMS(gguf.MXFP4Values[:]) / 2)
	e := math.Floor(math.Log2(want))
	share := (square(want/math.Exp2(e)) - 1) / 3
	if s.Float64() < share {
		e++
	}
	b[0] = byte(min(max(127+e, 0), 254))
}

// drawNVFP4: e/2 * table[q], e a UE4M3 for each 16 elements. The largest scale that is not too
// large and the one after it are drawn in the proportion that gives the standard deviation,
// after it is spread.
func drawNVFP4(s source, b []byte, std float64) {
	s.bytes(b[4:])
	for k := range 4 {
		want := math.Abs(s.scale(std, tableRMS(gguf.MXFP4Values[:])))
		e := sort.Search(126, func(e int) bool { return float64(gguf.NVFP4Scale(uint8(e+1))) > want })
		low, high := square(float64(gguf.NVFP4Scale(uint8(e)))), square(float64(gguf.NVFP4Scale(uint8(min(e+1, 126)))))
		if e < 126 && s.Float64()*(high-low) < square(want)-low {
			e++
		}
		b[k] = byte(e)
	}
}

// bfloat16 rounds to nearest, ties to even.
func bfloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// putFloat stores v as a F32 or F16 element.
func putFloat(b []byte, t gguf.Type, v float64) {
	if t == gguf.F16 {
		putFloat16(b, v)
		return
	}
	binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
}

func appendInt32(b []byte, v int32) []byte { return binary.LittleEndian.AppendUint32(b, uint32(v)) }
