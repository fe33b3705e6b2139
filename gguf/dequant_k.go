package gguf

// The K types: super-blocks of 256 elements with small integer scales for
// sub-blocks of 16 or 32 under one float16 scale.

// decodeQ2K: scales uint8[16], q 64 bytes, d, dmin float16. Sub-block k = 8h+2s+u
// (h half of 128, s bit pair, u sixteen within 32) has q in bits 2s, 2s+1 of
// bytes 32h+16u..; y = d*(scale&15)*q - dmin*(scale>>4).
func decodeQ2K(dst []float32, src []byte) {
	scales, qs := src[:16], src[16:80]
	d, dmin := loadF16(src[80:]), loadF16(src[82:])
	for i := range 256 {
		h, s, u, l := i/128, i/32%4, i/16%2, i%16
		q := qs[32*h+16*u+l] >> (2 * s) & 3
		sc := scales[i/16]
		scale, least := float32(d*float32(sc&15)), float32(dmin*float32(sc>>4))
		dst[i] = float32(scale*float32(q)) - least
	}
}

// decodeQ3K: hmask 32 bytes, q 64 bytes, scales 12 bytes (6 bits each), d float16.
// Element order as Q2_K. Bit 4h+s of hmask[16u+l] clear subtracts 4;
// y = d*(scale-32)*q.
func decodeQ3K(dst []float32, src []byte) {
	hmask, qs, scales := src[:32], src[32:96], src[96:108]
	d := loadF16(src[108:])
	for i := range 256 {
		h, s, u, l := i/128, i/32%4, i/16%2, i%16
		q := int(qs[32*h+16*u+l] >> (2 * s) & 3)
		if hmask[16*u+l]>>(4*h+s)&1 == 0 {
			q -= 4
		}
		dst[i] = float32(d*float32(scaleQ3K(scales, i/16)-32)) * float32(q)
	}
}

// scaleQ3K is the 6-bit scale of sub-block k (0..15): four low bits in bytes
// 0..7 (two a byte, k and k+8), two high bits in bytes 8..11 (four a byte).
func scaleQ3K(scales []byte, k int) int {
	low := scales[k%8] >> (k / 8 * 4) & 15
	high := scales[8+k%4] >> (2 * (k / 4)) & 3
	return int(low | high<<4)
}

// scaleQ4K gives the 6-bit scale and minimum of sub-block j (0..7) of Q4_K and
// Q5_K from their 12 bytes: the first four lie whole in bytes 0..7; of the last
// four, the low nibbles share bytes 8..11 and the top two bits are in the
// upper bits of bytes 0..7.
func scaleQ4K(scales []byte, j int) (scale, least byte) {
	if j < 4 {
		return scales[j] & 63, scales[j+4] & 63
	}
	return scales[j+4]&15 | scales[j-4]>>6<<4, scales[j+4]>>4 | scales[j]>>6<<4
}

// decodeQ4K: d, dmin float16, scales 12 bytes, q 128 bytes: sub-blocks 2p and 2p+1
// of 32 are the low and the high nibbles of bytes 32p..32p+31;
// y = d*scale*q - dmin*least.
func decodeQ4K(dst []float32, src []byte) {
	d, dmin := loadF16(src), loadF16(src[2:])
	scales, qs := src[4:16], src[16:]
	for i := range 256 {
		j := i / 32
		sc, least := scaleQ4K(scales, j)
		q := qs[32*(j/2)+i%32] >> (j % 2 * 4) & 15
		dst[i] = float32(float32(d*float32(sc))*float32(q)) - float32(dmin*float32(least))
	}
}

// decodeQ5K: d, dmin float16, scales 12 bytes, qh 32 bytes, q 128 bytes: Q4_K with
// bit j of qh[l] as fifth bit of element l of sub-block j.
func decodeQ5K(dst []float32, src []byte) {
	d, dmin := loadF16(src), loadF16(src[2:])
	scales, qh, qs := src[4:16], src[16:48], src[48:]
	for i := range 256 {
		j := i / 32
		sc, least := scaleQ4K(scales, j)
		q := qs[32*(j/2)+i%32]>>(j%2*4)&15 | qh[i%32]>>j&1<<4
		dst[i] = float32(float32(d*float32(sc))*float32(q)) - float32(dmin*float32(least))
	}
}

// decodeQ6K: ql 128 bytes, qh 64 bytes, scales int8[16], d float16. In each half of
// 128, run r (0..3) of 32 takes its low nibble from ql (runs 0, 2 from the first
// 32 bytes, 1, 3 from the next; 2, 3 the high nibbles) and bits 2r, 2r+1 of qh;
// y = d*scale*(q-32).
func decodeQ6K(dst []float32, src []byte) {
	ql, qh, scales := src[:128], src[128:192], src[192:208]
	d := loadF16(src[208:])
	for i := range 256 {
		h, r, l := i/128, i/32%4, i%32
		low := ql[64*h+32*(r%2)+l] >> (r / 2 * 4) & 15
		high := qh[32*h+l] >> (2 * r) & 3
		q := int(low|high<<4) - 32
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(q)
	}
}
