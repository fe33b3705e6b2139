// Types of the row kernels of gemv_avx2.inc.h: how their weights and scales are unpacked.

// The orders of groups that come from loads of 32 bytes: see piece_at.
#define NATURAL 0x76543210u
#define NIBBLES 0x75316420u   // blocks of 16 bytes, two to a vector
#define NIBBLES_K 0x75643120u // 32 bytes with the nibbles of two groups
#define QUARTERS 0x73625140u  // 32 bytes with two bits of four groups

// mix brings pieces of the groups in a and b side by side: 0 and 2, and 1 and 3.
INLINE void mix(__m256i a, __m256i b, __m256i v[2]) {
	v[0] = _mm256_unpacklo_epi64(a, b);
	v[1] = _mm256_unpackhi_epi64(a, b);
}

INLINE __m256i low4(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
INLINE __m256i high4(__m256i v) { return low4(_mm256_srli_epi16(v, 4)); }
INLINE __m256i bits(__m256i v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi8((char)mask)); }

// scales_at converts the float16 of eight blocks, `stride` bytes apart, by place.
INLINE __m256 scales_at(const uint8_t *w, int stride, unsigned order) {
	uint64_t q[2] = {0, 0};
	RM_UNROLL
	for (int i = 0; i < 8; i++) q[i / 4] |= (uint64_t)rm_load16(w + stride * nibble(order, i)) << (16 * (i % 4));
	return _mm256_cvtph_ps(_mm_set_epi64x((long long)q[1], (long long)q[0]));
}

// bytes_by_place puts byte first + step*g of each group g into its lane.
INLINE __m256i bytes_by_place(__m128i v, unsigned order, int first, int step) {
	uint64_t at = 0;
	RM_UNROLL
	for (int i = 0; i < 8; i++) at |= (uint64_t)(first + step * nibble(order, i)) << (8 * i);
	return _mm256_cvtepu8_epi32(_mm_shuffle_epi8(v, _mm_set_epi64x(0, (long long)at)));
}

// ---- types with one scale per 32 columns --------------------------------------

INLINE void scales_q8_0(const uint8_t *w, scales8 *s) { s->s = scales_at(w, 34, NATURAL); }

INLINE void unpack_q8_0(const uint8_t *w, __m256i q[8]) {
	__m256i sign = _mm256_set1_epi8((char)0x80);
	RM_UNROLL
	for (int i = 0; i < 4; i++, w += 68) mix(_mm256_xor_si256(load256(w + 2), sign), _mm256_xor_si256(load256(w + 36), sign), q + 2 * i);
}

// nibbles16 spreads 16 bytes of each of four groups: the low nibbles are pieces 0 and 1.
INLINE void nibbles16(__m256i a, __m256i b, __m256i q[4]) {
	__m256i v[2];
	mix(a, b, v);
	for (int i = 0; i < 2; i++) {
		q[i] = low4(v[i]);
		q[2 + i] = high4(v[i]);
	}
}

// blocks16 spreads the nibbles of eight blocks, `stride` bytes apart.
INLINE void blocks16(const uint8_t *w, int stride, __m256i q[8]) {
	RM_UNROLL
	for (int i = 0; i < 2; i++, w += 4 * stride) {
		__m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(w)), load128(w + stride), 1);
		__m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(w + 2 * stride)), load128(w + 3 * stride), 1);
		nibbles16(a, b, q + 4 * i);
	}
}

// look_up replaces nibbles by signed values + offset.
INLINE void look_up(const int8_t *values, int offset, __m256i q[8]) {
	__m256i table = _mm256_add_epi8(table32(values), _mm256_set1_epi8((char)offset));
	for (int i = 0; i < 8; i++) q[i] = _mm256_shuffle_epi8(table, q[i]);
}

INLINE void scales_q4_0(const uint8_t *w, scales8 *s) { s->s = scales_at(w, 18, NIBBLES); }
INLINE void unpack_q4_0(const uint8_t *w, __m256i q[8]) { blocks16(w + 2, 18, q); }

INLINE void unpack_iq4_nl(const uint8_t *w, __m256i q[8]) {
	blocks16(w + 2, 18, q);
	look_up(rm_iq4nl_values, 128, q);
}

#define MXFP4_OFFSET 12
INLINE void unpack_mxfp4(const uint8_t *w, __m256i q[8]) {
	blocks16(w + 1, 17, q);
	look_up(rm_mxfp4_values, MXFP4_OFFSET, q);
}

INLINE void scales_mxfp4(const uint8_t *w, scales8 *s) {
	uint64_t bytes = 0;
	RM_UNROLL
	for (int i = 0; i < 8; i++) bytes |= (uint64_t)w[17 * nibble(NIBBLES, i)] << (8 * i);
	__m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
	__m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23), small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
	s->s = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

INLINE void unpack_iq4_xs(const uint8_t *w, __m256i q[8]) {
	for (int i = 0; i < 2; i++) nibbles16(load256(w + 8 + 64 * i), load256(w + 40 + 64 * i), q + 4 * i);
	look_up(rm_iq4nl_values, 128, q);
}

INLINE void scales_iq4_xs(const uint8_t *w, scales8 *s) {
	__m256i shift2 = _mm256_slli_epi32(nibbles8(NIBBLES), 1), shift4 = _mm256_slli_epi32(shift2, 1);
	__m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)rm_load32(w + 4)), shift4), _mm256_set1_epi32(15));
	__m256i high = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(rm_load16(w + 2)), shift2), _mm256_set1_epi32(3));
	__m256i sc = _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
	s->s = _mm256_mul_ps(half1(w), _mm256_cvtepi32_ps(sc));
}

// ---- super-blocks -------------------------------------------------------------

INLINE void unpack_q4_k(const uint8_t *w, __m256i q[8]) {
	for (int j = 0; j < 2; j++) {
		__m256i v[2];
		mix(load256(w + 16 + 64 * j), load256(w + 48 + 64 * j), v);
		for (int i = 0; i < 2; i++) {
			q[4 * j + i] = low4(v[i]);
			q[4 * j + 2 + i] = high4(v[i]);
		}
	}
}

INLINE void scales_q4_k(const uint8_t *w, scales8 *s) {
	__m128i sc = scales_k(w + 4);
	s->s = _mm256_mul_ps(half1(w), _mm256_cvtepi32_ps(bytes_by_place(sc, NIBBLES_K, 0, 1)));
	s->m0 = _mm256_mul_ps(half1(w + 2), _mm256_cvtepi32_ps(bytes_by_place(sc, NIBBLES_K, 8, 1)));
}

// Bit g of 32 bytes is the fifth bit of group g.
INLINE void unpack_q5_k(const uint8_t *w, __m256i q[8]) {
	__m256i h = load256(w + 16), f[2];
	mix(h, _mm256_srli_epi16(h, 2), f); // bits 0, 1, 4 and 5 are those of groups 0, 1, 4 and 5, or 2, 3, 6 and 7
	for (int j = 0; j < 2; j++) {
		__m256i v[2];
		mix(load256(w + 48 + 64 * j), load256(w + 80 + 64 * j), v);
		for (int i = 0; i < 2; i++) {
			__m256i even = j ? f[i] : _mm256_slli_epi16(f[i], 4), odd = j ? _mm256_srli_epi16(f[i], 1) : _mm256_slli_epi16(f[i], 3);
			q[4 * j + i] = _mm256_or_si256(low4(v[i]), bits(even, 16));
			q[4 * j + 2 + i] = _mm256_or_si256(high4(v[i]), bits(odd, 16));
		}
	}
}

// A byte of Q2_K holds two bits of each of four groups, which are used in place as far as
// the sums have room: weights times 1, 4 and 16.
INLINE void unpack_q2_k(const uint8_t *w, __m256i q[8]) {
	__m256i v[2];
	mix(load256(w + 16), load256(w + 48), v);
	for (int i = 0; i < 2; i++) {
		q[i] = bits(v[i], 0x03);
		q[2 + i] = bits(v[i], 0x0c);
		q[4 + i] = bits(v[i], 0x30);
		q[6 + i] = bits(_mm256_srli_epi16(v[i], 2), 0x30);
	}
}

INLINE __m128i sub_q2_k(const uint8_t *w) { return _mm_and_si128(load128(w), _mm_set1_epi8(15)); }

INLINE void scales_q2_k(const uint8_t *w, scales8 *s) {
	__m128i least = _mm_and_si128(_mm_srli_epi16(load128(w), 4), _mm_set1_epi8(15));
	__m256 dmin = half1(w + 82);
	s->s = half1(w + 80);
	s->m0 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(bytes_by_place(least, QUARTERS, 0, 2)));
	s->m1 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(bytes_by_place(least, QUARTERS, 1, 2)));
}

// Q3_K: as Q2_K, with bit g of a mask byte as the third bit of group g.
INLINE void unpack_q3_k(const uint8_t *w, __m256i q[8]) {
	__m256i v[2], h[2], m = load256(w);
	mix(load256(w + 32), load256(w + 64), v);
	mix(m, _mm256_srli_epi16(m, 4), h);
	for (int i = 0; i < 2; i++) {
		__m256i next = _mm256_srli_epi16(v[i], 4);
		q[i] = _mm256_or_si256(bits(v[i], 0x03), bits(_mm256_slli_epi16(h[i], 2), 0x04));
		q[2 + i] = _mm256_or_si256(bits(v[i], 0x0c), bits(_mm256_slli_epi16(h[i], 3), 0x10));
		q[4 + i] = _mm256_or_si256(bits(next, 0x03), bits(h[i], 0x04));
		q[6 + i] = _mm256_or_si256(bits(next, 0x0c), bits(_mm256_slli_epi16(h[i], 1), 0x10));
	}
}

// sub_q3_k gives rm_q3k_scale - 32.
INLINE __m128i sub_q3_k(const uint8_t *w) {
	uint64_t low = rm_load64(w + 96), nibble = 0x0f0f0f0f0f0f0f0f, high = rm_load32(w + 104), two = 0x30303030;
	uint64_t first = (low & nibble) | (high << 4 & two) | (high << 2 & two) << 32;
	uint64_t last = (low >> 4 & nibble) | (high & two) | (high >> 2 & two) << 32;
	return _mm_sub_epi8(_mm_set_epi64x((long long)last, (long long)first), _mm_set1_epi8(32));
}

INLINE void scales_q3_k(const uint8_t *w, scales8 *s) { s->s = half1(w + 108); }

INLINE void unpack_q6_k(const uint8_t *w, __m256i q[8]) {
	__m256i a[2], b[2], h[2];
	mix(load256(w), load256(w + 64), a);
	mix(load256(w + 32), load256(w + 96), b);
	mix(load256(w + 128), load256(w + 160), h);
	for (int i = 0; i < 2; i++) {
		q[i] = _mm256_or_si256(low4(a[i]), bits(_mm256_slli_epi16(h[i], 4), 0x30));
		q[2 + i] = _mm256_or_si256(low4(b[i]), bits(_mm256_slli_epi16(h[i], 2), 0x30));
		q[4 + i] = _mm256_or_si256(high4(a[i]), bits(h[i], 0x30));
		q[6 + i] = _mm256_or_si256(high4(b[i]), bits(_mm256_srli_epi16(h[i], 2), 0x30));
	}
}

INLINE __m128i sub_q6_k(const uint8_t *w) { return load128(w + 192); }
INLINE void scales_q6_k(const uint8_t *w, scales8 *s) { s->s = half1(w + 208); }

#define IQ2_XXS_OFFSET 43
// IQ2_XXS: rm_iq2xxs_grid has the magnitudes of eight weights, rm_sign_bytes their signs.
INLINE void unpack_iq2_xxs(const uint8_t *w, __m256i q[8]) {
	RM_UNROLL
	for (int i = 0; i < 4; i++) {
		__m256i v[2];
		for (int j = 0; j < 2; j++) {
			const uint8_t *at = w + 2 + 16 * i + 8 * j;
			uint32_t s = rm_load32(at + 4);
			__m256i grid = _mm256_set_epi64x((long long)rm_iq2xxs_grid[at[3]], (long long)rm_iq2xxs_grid[at[2]],
			                                 (long long)rm_iq2xxs_grid[at[1]], (long long)rm_iq2xxs_grid[at[0]]);
			__m256i sign = _mm256_set_epi64x((long long)rm_sign_bytes[s >> 21 & 127], (long long)rm_sign_bytes[s >> 14 & 127],
			                                 (long long)rm_sign_bytes[s >> 7 & 127], (long long)rm_sign_bytes[s & 127]);
			v[j] = _mm256_add_epi8(_mm256_sign_epi8(grid, sign), _mm256_set1_epi8(IQ2_XXS_OFFSET));
		}
		mix(v[0], v[1], q + 2 * i);
	}
}

INLINE void scales_iq2_xxs(const uint8_t *w, scales8 *s) {
	// The odd dwords of 64 bytes, in their order, have the scale in their highest four bits.
	__m256i words = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(load256(w + 2)), _mm256_castsi256_ps(load256(w + 34)), 0xdd));
	__m256 n = _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_permute4x64_epi64(words, 0xd8), 28));
	n = _mm256_mul_ps(half1(w), _mm256_add_ps(n, _mm256_set1_ps(0.5f)));
	s->s = _mm256_mul_ps(n, _mm256_set1_ps(0.25f));
}

#define KIND_Q8_0 (row_kind){unpack_q8_0, scales_q8_0, NULL, WORDS | OFFSET, 272, NATURAL, 0, 128}

// EACH_ROW lists the types: name, number, row_kind.
#define EACH_ROW(F) \
	F(q8_0, RM_Q8_0, KIND_Q8_0) \
	F(q4_0, RM_Q4_0, (row_kind){unpack_q4_0, scales_q4_0, NULL, OFFSET | WHOLE, 144, NIBBLES, 0, 8}) \
	F(iq4_nl, RM_IQ4_NL, (row_kind){unpack_iq4_nl, scales_q4_0, NULL, WORDS | OFFSET | WHOLE, 144, NIBBLES, 0, 128}) \
	F(mxfp4, RM_MXFP4, (row_kind){unpack_mxfp4, scales_mxfp4, NULL, OFFSET | WHOLE, 136, NIBBLES, 0, MXFP4_OFFSET}) \
	F(iq4_xs, RM_IQ4_XS, (row_kind){unpack_iq4_xs, scales_iq4_xs, NULL, WORDS | OFFSET | WHOLE, 136, NIBBLES, 0, 128}) \
	F(q4_k, RM_Q4_K, (row_kind){unpack_q4_k, scales_q4_k, NULL, MIN32, 144, NIBBLES_K, 0, 0}) \
	F(q5_k, RM_Q5_K, (row_kind){unpack_q5_k, scales_q4_k, NULL, MIN32, 176, NIBBLES_K, 0, 0}) \
	F(q2_k, RM_Q2_K, (row_kind){unpack_q2_k, scales_q2_k, sub_q2_k, SUB | MIN16 | SHIFT, 84, QUARTERS, 0x44442200u, 0}) \
	F(q3_k, RM_Q3_K, (row_kind){unpack_q3_k, scales_q3_k, sub_q3_k, SUB | OFFSET16 | SHIFT, 110, QUARTERS, 0x22002200u, 4}) \
	F(q6_k, RM_Q6_K, (row_kind){unpack_q6_k, scales_q6_k, sub_q6_k, SUB | OFFSET16, 210, QUARTERS, 0, 32}) \
	F(iq2_xxs, RM_IQ2_XXS, (row_kind){unpack_iq2_xxs, scales_iq2_xxs, NULL, WORDS | OFFSET, 66, NATURAL, 0, IQ2_XXS_OFFSET})
