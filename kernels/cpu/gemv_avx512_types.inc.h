// Types of the row kernels of gemv_avx512.inc.h: how their weights and scales are unpacked.

// ---- types with one scale per 32 columns ------------------------------------

// scale_words gathers the 16-bit words of eight groups of two rows, `stride` bytes apart,
// in the order of scale_pair.
INLINE __m256i scale_words(const uint8_t *w0, const uint8_t *w1, int stride, int order) {
	long long q[4];
	RM_UNROLL
	for (int i = 0; i < 4; i++) {
		int a = stride * (order >> (8 * i) & 15), b = stride * (order >> (8 * i + 4) & 15);
		q[i] = (long long)((uint64_t)rm_load16(w0 + a) | (uint64_t)rm_load16(w0 + b) << 16 | (uint64_t)rm_load16(w1 + a) << 32 |
		                   (uint64_t)rm_load16(w1 + b) << 48);
	}
	return _mm256_set_epi64x(q[3], q[2], q[1], q[0]);
}

#define NATURAL 0x76543210

// cross brings pieces 0 and 2 of the groups in a and 1 and 3 of those in b side by side,
// then the others. The first is no shuffle, which fewer pipes of a processor compute.
INLINE void cross(__m512i a, __m512i b, __m512i v[2]) {
	v[0] = _mm512_mask_blend_epi64(0xaa, a, b);
	v[1] = _mm512_castpd_si512(_mm512_shuffle_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), 0x55));
}

INLINE void scales_q8_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = _mm512_cvtph_ps(scale_words(w0, w1, 34, NATURAL)); }

INLINE void unpack_q8_0(const uint8_t *w, __m512i q[4]) {
	__m512i sign = _mm512_set1_epi8((char)0x80);
	for (int h = 0; h < 2; h++, w += 136) {
		cross(_mm512_xor_si512(twice(w + 2, w + 70), sign), _mm512_xor_si512(twice(w + 36, w + 104), sign), q + 2 * h);
	}
}

// quarters loads 16 bytes from each of four addresses, `stride` bytes apart.
INLINE __m512i quarters(const uint8_t *p, int stride) {
	__m512i v = _mm512_castsi128_si512(load128(p));
	v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load128(p + stride));
	v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load128(p + 2 * stride));
	return _mm512_mask_broadcast_i32x4(v, 0xf000, load128(p + 3 * stride));
}

// nibbles spreads 16 bytes of each of eight groups, a of groups 0..3: the low nibbles are
// pieces 0 and 1. The order of the groups is HALVES.
#define HALVES 0x73625140
INLINE void nibbles(__m512i a, __m512i b, __m512i q[4]) {
	__m512i low = _mm512_set1_epi8(15), v[2] = {_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)};
	for (int i = 0; i < 2; i++) {
		q[i] = _mm512_and_si512(v[i], low);
		q[2 + i] = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), low);
	}
}

INLINE void scales_q4_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = _mm512_cvtph_ps(scale_words(w0, w1, 18, HALVES)); }

INLINE void unpack_q4_0(const uint8_t *w, __m512i q[4]) { nibbles(quarters(w + 2, 18), quarters(w + 74, 18), q); }

// look_up replaces nibbles by signed values + 128.
INLINE void look_up(const int8_t *values, __m512i q[4]) {
	__m512i table = offset_table(values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, q[i]);
}

INLINE void unpack_iq4_nl(const uint8_t *w, __m512i q[4]) {
	unpack_q4_0(w, q);
	look_up(rm_iq4nl_values, q);
}

INLINE void unpack_mxfp4(const uint8_t *w, __m512i q[4]) {
	nibbles(quarters(w + 1, 17), quarters(w + 69, 17), q);
	look_up(rm_mxfp4_values, q);
}

INLINE void scales_mxfp4(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	// As words and not as bytes: gcc builds a vector of 16 bytes through memory, three times as slow.
	__m512i e = _mm512_cvtepu16_epi32(scale_words(w0, w1, 17, HALVES));
	e = _mm512_and_si512(e, _mm512_set1_epi32(255));
	// 2^(e-128), subnormal for e of 0 and 1: rm_mxfp4_scale.
	__m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
	__mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
	s->s = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

INLINE void unpack_iq4_xs(const uint8_t *w, __m512i q[4]) {
	nibbles(load512(w + 8), load512(w + 72), q);
	look_up(rm_iq4nl_values, q);
}

// by_row has a in the lanes of the first row and b in those of the second.
INLINE __m512i by_row(uint32_t a, uint32_t b) { return _mm512_mask_set1_epi32(_mm512_set1_epi32((int)a), 0xcccc, (int)b); }

// super_scales repeats the two float16 values at the start of a super-block in the lanes
// of two rows: the low ones in `first`, the high ones in `second`.
INLINE void super_scales(const uint8_t *at0, const uint8_t *at1, __m512 *first, __m512 *second) {
	__m512 v = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)(rm_load32(at0) | (uint64_t)rm_load32(at1) << 32))));
	__m512i low = _mm512_set4_epi32(2, 2, 0, 0);
	*first = _mm512_permutexvar_ps(low, v);
	*second = _mm512_permutexvar_ps(_mm512_add_epi32(low, _mm512_set1_epi32(1)), v);
}

INLINE __m512 super_scale16(const uint8_t *at0, const uint8_t *at1) {
	__m128i h = _mm_cvtsi32_si128((int)(rm_load16(at0) | (uint32_t)rm_load16(at1) << 16));
	return _mm512_permutexvar_ps(_mm512_set4_epi32(1, 1, 0, 0), _mm512_castps128_ps512(_mm_cvtph_ps(h)));
}

INLINE void scales_iq4_xs(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m512i shift2 = _mm512_slli_epi32(nibble_lanes(HALVES), 1), shift4 = _mm512_slli_epi32(shift2, 1);
	__m512i low = _mm512_and_si512(_mm512_srlv_epi32(by_row(rm_load32(w0 + 4), rm_load32(w1 + 4)), shift4), _mm512_set1_epi32(15));
	__m512i high = _mm512_and_si512(_mm512_srlv_epi32(by_row(rm_load16(w0 + 2), rm_load16(w1 + 2)), shift2), _mm512_set1_epi32(3));
	__m512i sc = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
	s->s = _mm512_mul_ps(super_scale16(w0, w1), _mm512_cvtepi32_ps(sc));
}

// ---- super-blocks -----------------------------------------------------------

// halves64 is a in the low and b in the high half of a vector of 64-bit numbers,
// alternate64 both in turns, alternate8 the same as bytes.
INLINE __m512i halves64(int64_t a, int64_t b) { return _mm512_set_epi64(b, b, b, b, a, a, a, a); }
INLINE __m512i alternate64(int64_t a, int64_t b) { return _mm512_set_epi64(b, a, b, a, b, a, b, a); }
INLINE __m512i alternate8(int a, int b) {
	uint64_t every = 0x0101010101010101;
	return alternate64((int64_t)((uint64_t)a * every), (int64_t)((uint64_t)b * every));
}

// mix brings pieces of the groups in a and b side by side: 0 and 2, and 1 and 3.
INLINE void mix(__m512i a, __m512i b, __m512i v[2]) {
	v[0] = _mm512_unpacklo_epi64(a, b);
	v[1] = _mm512_unpackhi_epi64(a, b);
}

// merge takes the bits of a in `mask` and the rest of b, of both only `bits`.
INLINE __m512i merge(__m512i mask, __m512i a, __m512i b, __m512i bits) { return _mm512_and_si512(pick(mask, a, b), bits); }

// widen interleaves 16 small signed numbers of two rows in the order of scale_pair, twice
// eight of each, `order` being that of the places.
INLINE void widen_pair(__m128i a, __m128i b, __m128i order, __m512i k[2]) {
	a = _mm_shuffle_epi8(a, order);
	b = _mm_shuffle_epi8(b, order);
	k[0] = _mm512_cvtepi8_epi32(_mm_unpacklo_epi16(a, b));
	k[1] = _mm512_cvtepi8_epi32(_mm_unpackhi_epi16(a, b));
}

// A byte of Q4_K holds a weight of one group in its low nibble and one of the
// next group in its high nibble; the high one is used in place, sixteen times
// too large.
#define NIBBLES_K 0x73516240
INLINE void unpack_q4_k(const uint8_t *w, __m512i q[4]) {
	__m512i v[2];
	mix(load512(w + 16), load512(w + 80), v);
	for (int i = 0; i < 2; i++) {
		q[i] = _mm512_and_si512(v[i], _mm512_set1_epi8(0x0f));
		q[2 + i] = _mm512_and_si512(v[i], _mm512_set1_epi8((char)0xf0));
	}
}

INLINE __m256i pair256(const uint8_t *p, const uint8_t *q) {
	return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p)), load128(q), 1);
}

// scales_q4_k decodes d, dmin and 12 bytes of scales and minima (rm_q4k_scale).
INLINE void scales_q4_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m256i h = pair256(w0, w1);
	__m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(h, 0xed), _mm256_set_epi32(4, 0, 0, 0, 4, 0, 0, 0)); // dwords 1 3 2 3
	low = _mm256_and_si256(low, _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f));
	__m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(h, 0xa5), 2); // dwords 1 1 2 2
	low = _mm256_ternarylogic_epi32(_mm256_set1_epi64x(0x3030303000000000), high, low, 0xea);
	__m512 d, dmin;
	super_scales(w0, w1, &d, &dmin);
	__m512i k[2];
	widen_pair(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1), _mm_set_epi8(15, 11, 13, 9, 14, 10, 12, 8, 7, 3, 5, 1, 6, 2, 4, 0), k);
	s->s = _mm512_mul_ps(d, _mm512_cvtepi32_ps(k[0]));
	s->m0 = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(k[1]));
}

// Bit g of 32 bytes is the fifth bit of group g. Odd groups are twice too large: so the
// fifth bits of even and odd ones are moved together.
INLINE void unpack_q5_k(const uint8_t *w, __m512i q[4]) {
	__m512i h = both(w + 16), v[2], f[2];
	mix(load512(w + 48), load512(w + 112), v);
	mix(_mm512_slli_epi16(h, 4), h, f); // bits 4 to 7 are those of groups 0 to 3, or 4 to 7
	for (int i = 0; i < 2; i++) {
		__m512i fifth = _mm512_srlv_epi64(f[i], halves64(0, 2));
		q[i] = merge(_mm512_set1_epi8(0x0f), v[i], fifth, _mm512_set1_epi8(0x1f));
		q[2 + i] = merge(_mm512_set1_epi8(0x1e), _mm512_srli_epi16(v[i], 3), fifth, _mm512_set1_epi8(0x3e));
	}
}

// A byte of Q2_K holds two bits of each of four groups: weights times 1, 4, 16
// and 64.
#define TWO_BITS 0x76325410
INLINE void unpack_q2_k(const uint8_t *w, __m512i q[4]) {
	__m512i v[2], r = load512(w + 16);
	cross(r, r, v);
	for (int i = 0; i < 2; i++) {
		q[i] = _mm512_and_si512(v[i], alternate8(0x03, 0x0c));
		q[2 + i] = _mm512_and_si512(v[i], alternate8(0x30, 0xc0));
	}
}

// by_halves has the 16 bytes at the start of two rows in each 128 bits: the first eight of
// both rows, or the last eight where `last` has bits.
INLINE __m512i by_halves(const uint8_t *w0, const uint8_t *w1, __mmask8 last) {
	__m512i a = _mm512_broadcast_i32x4(load128(w0)), b = _mm512_broadcast_i32x4(load128(w1));
	return _mm512_mask_unpackhi_epi64(_mm512_unpacklo_epi64(a, b), last, a, b);
}

// widen4 widens bytes n and n+2 of both rows, n being different in each 128 bits.
INLINE __m512i widen4(__m512i v, int n0, int n1, int n2, int n3) {
	__m512i first = _mm512_set4_epi32((int)0x8080800a, (int)0x80808008, (int)0x80808002, (int)0x80808000);
	__m512i n = _mm512_set_epi32(n3, n3, n3, n3, n2, n2, n2, n2, n1, n1, n1, n1, n0, n0, n0, n0);
	return _mm512_shuffle_epi8(v, _mm512_add_epi32(first, n));
}

INLINE void sub_q2_k(const uint8_t *w0, const uint8_t *w1, __m512i k[2]) {
	__m512i v = _mm512_and_si512(by_halves(w0, w1, 0xf0), _mm512_set1_epi8(15));
	k[0] = widen4(v, 0, 1, 0, 1);
	k[1] = widen4(v, 4, 5, 4, 5);
}

// The minima are looked up in a table of 16 numbers, which takes only four bits. Those of
// both halves of a group are in one lane.
INLINE void scales_q2_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m512i low = _mm512_set4_epi32((int)0x80800b0a, (int)0x80800908, (int)0x80800302, (int)0x80800100);
	__m512i v = _mm512_shuffle_epi8(by_halves(w0, w1, 0xcc), _mm512_add_epi32(low, halves64(0, 0x0000040400000404)));
	__m512 numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), dmin;
	super_scales(w0 + 80, w1 + 80, &s->s, &dmin);
	s->m0 = _mm512_mul_ps(dmin, _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), numbers));
	s->m1 = _mm512_mul_ps(dmin, _mm512_permutexvar_ps(_mm512_srli_epi32(v, 12), numbers));
}

// Q3_K: as Q2_K, with bit g of a mask byte as the third bit of group g. Four groups are
// moved down by two bits, which makes them 4 or 16 times too large: so the third bits of
// two groups are moved together.
INLINE void unpack_q3_k(const uint8_t *w, __m512i q[4]) {
	__m512i v[2], h[2], r = load512(w + 32), m = _mm512_srlv_epi64(both(w), halves64(0, 4));
	cross(r, r, v);
	cross(m, m, h);
	for (int i = 0; i < 2; i++) {
		__m512i third = _mm512_sllv_epi64(h[i], alternate64(2, 3));
		q[i] = merge(alternate8(0x03, 0x0c), v[i], third, alternate8(0x07, 0x1c));
		q[2 + i] = merge(alternate8(0x0c, 0x30), _mm512_srli_epi16(v[i], 2), third, alternate8(0x1c, 0x70));
	}
}

// sub_q3_k gives rm_q3k_scale - 32 from 12 bytes, those of k[0] in the low half of a
// vector.
INLINE void sub_q3_k(const uint8_t *w0, const uint8_t *w1, __m512i k[2]) {
	__m256i low = _mm256_blend_epi32(_mm256_set1_epi64x((long long)rm_load64(w0 + 96)), _mm256_set1_epi64x((long long)rm_load64(w1 + 96)), 0xcc);
	__m256i high = _mm256_blend_epi32(_mm256_set1_epi32((int)rm_load32(w0 + 104)), _mm256_set1_epi32((int)rm_load32(w1 + 104)), 0xaa);
	low = _mm256_shuffle_epi8(low, _mm256_set_epi32(0x0f0d0705, 0x0e0c0604, 0x0f0d0705, 0x0e0c0604, 0x0b090301, 0x0a080200, 0x0b090301, 0x0a080200));
	low = _mm256_and_si256(_mm256_srlv_epi64(low, _mm256_set_epi64x(4, 0, 4, 0)), _mm256_set1_epi8(15));
	high = _mm256_shuffle_epi8(high, _mm256_set1_epi64x(0x0705030106040200));
	high = _mm256_rolv_epi64(high, _mm256_set_epi64x(62, 2, 0, 4));
	high = _mm256_ternarylogic_epi32(_mm256_set1_epi8(0x30), high, low, 0xea);
	high = _mm256_sub_epi8(high, _mm256_set1_epi8(32));
	k[0] = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(high));
	k[1] = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(high, 1));
}

INLINE void scales_q3_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = super_scale16(w0 + 108, w1 + 108); }

INLINE void unpack_q6_k(const uint8_t *w, __m512i q[4]) {
	__m512i low = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63), v[2], h[2];
	mix(load512(w), load512(w + 64), v);
	mix(both(w + 128), both(w + 160), h);
	for (int i = 0; i < 2; i++) {
		q[i] = merge(low, v[i], _mm512_sllv_epi64(h[i], halves64(4, 2)), six);
		q[2 + i] = merge(low, _mm512_srli_epi16(v[i], 4), _mm512_srlv_epi64(h[i], halves64(0, 2)), six);
	}
}

INLINE void sub_q6_k(const uint8_t *w0, const uint8_t *w1, __m512i k[2]) {
	widen_pair(load128(w0 + 192), load128(w1 + 192), _mm_set_epi8(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0), k);
}

INLINE void scales_q6_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = super_scale16(w0 + 208, w1 + 208); }

#define KIND_Q8_0 (row_kind){unpack_q8_0, NULL, scales_q8_0, NULL, OFFSET | CROSS, 272, NATURAL, 0, 0, 0}

// EACH_ROW lists the types: name, number, row_kind.
#define EACH_ROW(F) \
	F(q8_0, RM_Q8_0, KIND_Q8_0) \
	F(q4_0, RM_Q4_0, (row_kind){unpack_q4_0, NULL, scales_q4_0, NULL, OFFSET | WHOLE, 144, HALVES, 0, 0, 4}) \
	F(iq4_nl, RM_IQ4_NL, (row_kind){unpack_iq4_nl, NULL, scales_q4_0, NULL, OFFSET | WHOLE, 144, HALVES, 0, 0, 0}) \
	F(mxfp4, RM_MXFP4, (row_kind){unpack_mxfp4, NULL, scales_mxfp4, NULL, OFFSET | WHOLE, 136, HALVES, 0, 0, 0}) \
	F(iq4_xs, RM_IQ4_XS, (row_kind){unpack_iq4_xs, NULL, scales_iq4_xs, NULL, OFFSET | WHOLE, 136, HALVES, 0, 0, 0}) \
	F(q4_k, RM_Q4_K, (row_kind){unpack_q4_k, NULL, scales_q4_k, NULL, MIN32 | SHIFT, 144, NIBBLES_K, 0x44440000, 0, 0}) \
	F(q5_k, RM_Q5_K, (row_kind){unpack_q5_k, NULL, scales_q4_k, NULL, MIN32 | SHIFT, 176, NIBBLES_K, 0x11110000, 0, 0}) \
	F(q2_k, RM_Q2_K, (row_kind){unpack_q2_k, NULL, scales_q2_k, sub_q2_k, SUB | MIN16 | SHIFT | CROSS, 84, TWO_BITS, 0x64642020, 0, 0}) \
	F(q3_k, RM_Q3_K, (row_kind){unpack_q3_k, NULL, scales_q3_k, sub_q3_k, SUB | OFFSET16 | SHIFT | CROSS, 110, TWO_BITS, 0x42422020, 0x02022424, 0}) \
	F(q6_k, RM_Q6_K, (row_kind){unpack_q6_k, NULL, scales_q6_k, sub_q6_k, SUB | OFFSET16, 210, HALVES, 0, 0x11111111, 0})
