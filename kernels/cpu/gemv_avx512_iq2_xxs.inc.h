// IQ2_XXS on 512-bit vectors, included by gemv_avx512.c after gemv_avx512.inc.h, inside a
// target section with VBMI and GFNI.
//
// A weight of a grid is 8, 25 or 43, with a sign. The tables hold not weights
// but two bits for each, as bit planes: bit j of a byte of plane A says that
// weight j of the entry is 43, of plane B that it is 25. So 256 entries fit
// eight vectors, in registers or the first-level cache, and look-ups are byte
// permutations. S is the plane of the signs and C = S & (A | B). Each bit of a
// weight + 128 is a sum modulo 2 of those four:
//
//	bit 7   1+S    bit 5   S+A    bit 3   1+C    bit 1   C+A
//	bit 6   S      bit 4   S+B    bit 2   C      bit 0   A+B
//
// vgf2p8affineqb with planes as its matrix turns eight bits of eight bytes into
// eight bytes; with a matrix of these sums it produces weights. Two rows are
// processed at once: their 64 entries fill one vector and their weights eight.

// iq2_xxs_dwords gathers the dwords of both rows, the grid numbers (odd 0) or
// the signs and scales (odd 1): two of row 0, two of row 1 and so on.
INLINE __m512i iq2_xxs_dwords(__m512i x0, __m512i x1, int odd) {
	__m512i even = _mm512_set_epi32(30, 28, 14, 12, 26, 24, 10, 8, 22, 20, 6, 4, 18, 16, 2, 0);
	return _mm512_permutex2var_epi32(x0, _mm512_add_epi32(even, _mm512_set1_epi32(odd)), x1);
}

// iq2_xxs_plane looks 64 entries up in a table of 256 bytes.
INLINE __m512i iq2_xxs_plane(__m512i at, __mmask64 high, const uint8_t *table) {
	__m512i low = _mm512_permutex2var_epi8(load512(table), at, load512(table + 64));
	return _mm512_mask_blend_epi8(high, low, _mm512_permutex2var_epi8(load512(table + 128), at, load512(table + 192)));
}

// unpack_iq2_xxs: 66 bytes: d, and for each group of 32 four grid numbers and a
// word of four 7-bit sign indices and a 4-bit scale. The eighth sign makes the
// number of negative ones even. q[r][e] are the entries e of row r.
INLINE void unpack_iq2_xxs(const uint8_t *w0, const uint8_t *w1, __m512i q[2][4]) {
	__m512i x0 = load512(w0 + 2), x1 = load512(w1 + 2);
	__m512i at = iq2_xxs_dwords(x0, x1, 0);
	__m512i s = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), iq2_xxs_dwords(x0, x1, 1));
	s = _mm512_gf2p8affine_epi64_epi8(s, _mm512_set1_epi64(0x010204081020407f), 0); // bit 7: parity of the rest
	__mmask64 high = _mm512_movepi8_mask(at);
	__m512i a = iq2_xxs_plane(at, high, rm_iq2xxs_43), b = iq2_xxs_plane(at, high, rm_iq2xxs_25);
	__m512i c = _mm512_ternarylogic_epi32(s, a, b, 0xe0);
	// Each word is two entries, 0 and 1 or 2 and 3; in a lane four are of row 0, four of row 1.
	__m512i sa[2] = {_mm512_unpacklo_epi16(s, a), _mm512_unpackhi_epi16(s, a)};
	__m512i bc[2] = {_mm512_unpacklo_epi16(b, c), _mm512_unpackhi_epi16(b, c)};
	__m512i even = _mm512_set_epi32(30, 14, 28, 12, 26, 10, 24, 8, 22, 6, 20, 4, 18, 2, 16, 0);
	for (int r = 0; r < 2; r++) {
		for (int e = 0; e < 4; e += 2) {
			__m512i planes = _mm512_permutex2var_epi32(sa[r], _mm512_add_epi32(even, _mm512_set1_epi32(e / 2)), bc[r]);
			// a byte, from its highest bit: S of entry e, S of entry e+1, A, A, B, B, C, C
			__m512i bits = _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)0x8040201008040201), planes, 0);
			q[r][e] = _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x2822020288a08080), 0x88);
			q[r][e + 1] = _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x1411010144504040), 0x88);
		}
	}
}

// The scale is d times (n + 1/2)/4, where n is the highest four bits of the
// word: inserted into the mantissa of 4 they give 4 + (n + 1/2)/4.
INLINE void scales_iq2_xxs(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m512i odd = _mm512_set_epi32(31, 29, 15, 13, 27, 25, 11, 9, 23, 21, 7, 5, 19, 17, 3, 1);
	__m512i words = _mm512_srli_epi32(_mm512_permutex2var_epi32(load512(w0 + 2), odd, load512(w1 + 2)), 9);
	words = _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(0x00780000), _mm512_set1_epi32(0x40840000), 0xea);
	s->s = _mm512_mul_ps(super_scale16(w0, w1), _mm512_sub_ps(_mm512_castsi512_ps(words), _mm512_set1_ps(4)));
}
