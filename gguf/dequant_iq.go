package gguf

import "encoding/binary"

// The codebook types: runs of 4 or 8 elements are points of a grid (grids.go)
// with separate signs, in super-blocks of 256 elements.

// signed is v, negated if bit j of mask is set.
func signed(v float32, mask uint8, j int) float32 {
	if mask>>j&1 == 1 {
		return -v
	}
	return v
}

// magnitudes writes n scaled, signed elements of a grid entry to dst. The signs
// are bits first..first+n-1 of mask.
func magnitudes(dst []float32, scale float32, entry uint64, n int, mask uint8, first int) {
	for j := range n {
		dst[j] = signed(scale*float32(uint8(entry>>(8*j))), mask, first+j)
	}
}

// decodeIQ2XXS: d float16, then per 32 elements two uint32: four grid indices of 8
// bits; four sign indices of 7 bits and a scale of 4;
// y = d*(0.5+scale)/4 * point.
func decodeIQ2XXS(dst []float32, src []byte) {
	d := loadF16(src)
	for g := range 8 {
		indices := src[2+8*g : 6+8*g]
		word := binary.LittleEndian.Uint32(src[6+8*g:])
		scale := d * (0.5 + float32(word>>28)) * 0.25
		for k, index := range indices {
			magnitudes(dst[32*g+8*k:], scale, IQ2XXSGrid[index], 8, SignMasks[word>>(7*k)&127], 0)
		}
	}
}

// decodeIQ2XS: d float16, uint16[32] (9-bit grid index, 7-bit sign index), scales 8
// bytes (a nibble for each 16 elements); y = d*(0.5+scale)/4 * point.
func decodeIQ2XS(dst []float32, src []byte) {
	d := loadF16(src)
	scales := src[66:]
	for k := range 32 {
		q := binary.LittleEndian.Uint16(src[2+2*k:])
		sc := scales[k/4] >> (k / 2 % 2 * 4) & 15
		scale := d * (0.5 + float32(sc)) * 0.25
		magnitudes(dst[8*k:], scale, IQ2XSGrid[q&511], 8, SignMasks[q>>9], 0)
	}
}

// decodeIQ2S: d float16, 32 low index bytes, 32 sign bytes, qh 8 bytes (two high
// index bits for each of four points), scales 8 bytes as IQ2_XS;
// y = d*(0.5+scale)/4 * point.
func decodeIQ2S(dst []float32, src []byte) {
	d := loadF16(src)
	low, signs, qh, scales := src[2:34], src[34:66], src[66:74], src[74:]
	for k := range 32 {
		index := int(low[k]) | int(qh[k/4]>>(k%4*2)&3)<<8
		sc := scales[k/4] >> (k / 2 % 2 * 4) & 15
		scale := d * (0.5 + float32(sc)) * 0.25
		magnitudes(dst[8*k:], scale, IQ2SGrid[index], 8, signs[k], 0)
	}
}

// decodeIQ3XXS: d float16, 64 grid indices (4 elements each), then per 32 elements
// a uint32: four sign indices of 7 bits and a scale of 4;
// y = d*(0.5+scale)/2 * point.
func decodeIQ3XXS(dst []float32, src []byte) {
	d := loadF16(src)
	indices := src[2:66]
	for k := range 64 {
		word := binary.LittleEndian.Uint32(src[66+4*(k/8):])
		scale := d * (0.5 + float32(word>>28)) * 0.5
		mask := SignMasks[word>>(7*(k/2%4))&127]
		magnitudes(dst[4*k:], scale, uint64(IQ3XXSGrid[indices[k]]), 4, mask, k%2*4)
	}
}

// decodeIQ3S: d float16, 64 low index bytes, qh 8 bytes (one high index bit for
// each of eight points), 32 sign bytes, scales 4 bytes (a nibble for each 32
// elements); y = d*(1+2*scale) * point.
func decodeIQ3S(dst []float32, src []byte) {
	d := loadF16(src)
	low, qh, signs, scales := src[2:66], src[66:74], src[74:106], src[106:]
	for k := range 64 {
		index := int(low[k]) | int(qh[k/8]>>(k%8)&1)<<8
		sc := scales[k/16] >> (k / 8 % 2 * 4) & 15
		scale := d * float32(1+2*int(sc))
		magnitudes(dst[4*k:], scale, uint64(IQ3SGrid[index]), 4, signs[k/2], k%2*4)
	}
}

// iq1Delta shifts the ternary points of IQ1_S and IQ1_M up or down.
const iq1Delta = 0.125

// ternary writes 8 elements scale*(point+delta) to dst.
func ternary(dst []float32, scale, delta float32, entry uint64) {
	for j := range 8 {
		dst[j] = scale * (float32(int8(entry>>(8*j))) + delta)
	}
}

// decodeIQ1S: d float16, 32 low index bytes, qh uint16[8]: per 32 elements four
// times three high index bits, a scale of 3 bits and the sign of delta;
// y = d*(1+2*scale) * (point ± 0.125).
func decodeIQ1S(dst []float32, src []byte) {
	d := loadF16(src)
	low := src[2:34]
	for k := range 32 {
		high := binary.LittleEndian.Uint16(src[34+2*(k/4):])
		index := int(low[k]) | int(high>>(3*(k%4))&7)<<8
		delta := float32(iq1Delta)
		if high>>15 == 1 {
			delta = -delta
		}
		ternary(dst[8*k:], d*float32(1+2*int(high>>12&7)), delta, IQ1SGrid[index])
	}
}

// scaleIQ1M is the float16 d of a block of IQ1_M: the top nibbles of its scales, lowest
// first.
func scaleIQ1M(src []byte) float32 {
	var d [2]byte
	for i := range 4 {
		d[i/2] |= src[49+2*i] >> 4 << (i % 2 * 4)
	}
	return loadF16(d[:])
}

// decodeIQ1M: 32 low index bytes, qh 16 bytes (a nibble for each 8 elements:
// three high index bits and the sign of delta), scales uint16[4]: four scales of
// 3 bits each, one for 16 elements, and in the top nibbles, lowest first, the
// float16 d; y = d*(1+2*scale) * (point ± 0.125).
func decodeIQ1M(dst []float32, src []byte) {
	low, qh := src[:32], src[32:48]
	var scales [4]uint16
	for i := range scales {
		scales[i] = binary.LittleEndian.Uint16(src[48+2*i:])
	}
	super := scaleIQ1M(src)
	for k := range 32 {
		nibble := qh[k/2] >> (k % 2 * 4) & 15
		delta := float32(iq1Delta)
		if nibble&8 != 0 {
			delta = -delta
		}
		sc := scales[k/8] >> (k / 2 % 4 * 3) & 7
		index := int(low[k]) | int(nibble&7)<<8
		ternary(dst[8*k:], super*float32(1+2*int(sc)), delta, IQ1SGrid[index])
	}
}

// decodeIQ4XS: d float16, scales_h uint16 (two high bits for each 32 elements),
// scales_l 4 bytes (four low bits each), q 128 bytes (per 32 elements as
// IQ4_NL); y = d*(scale-32)*table[q].
func decodeIQ4XS(dst []float32, src []byte) {
	d := loadF16(src)
	high, low, qs := binary.LittleEndian.Uint16(src[2:]), src[4:8], src[8:]
	for g := range 8 {
		sc := int(low[g/2]>>(g%2*4)&15) | int(high>>(2*g)&3)<<4
		scale := d * float32(sc-32)
		for i, b := range qs[16*g : 16*g+16] {
			dst[32*g+i] = scale * float32(IQ4NLValues[b&15])
			dst[32*g+16+i] = scale * float32(IQ4NLValues[b>>4])
		}
	}
}
