// Weights of the types with one scale for 32 columns, unpacked in the order of the columns:
// included by matmul_amx_few.c inside its target section. The row kernels unpack into an
// order of their own (gemv_avx512_types.inc.h).

#include "load_avx512.inc.h"

// halves is a in the low and b in the high half, as bytes or 16-bit words.
INLINE __m512i halves8(int a, int b) {
	return _mm512_inserti64x4(_mm512_set1_epi8((char)a), _mm256_set1_epi8((char)b), 1);
}
INLINE __m512i halves16(int a, int b) {
	return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

// Corrections that a type's integers need; combined with or.
enum {
	OFFSET = 1, // bytes are the weight + 128
	MIN32 = 2,  // a minimum for each 32 columns
	SHIFT = 4,  // odd groups' bytes are 16 times the weight
};

// scale_pair holds the float scales of 256 columns of two rows: lanes 0..7 are
// the groups of the first row. m0 are minima, to be subtracted.
typedef struct {
	__m512 s, m0;
} scale_pair;

// row_kind describes a type; it is a constant at every use.
typedef struct {
	void (*unpack)(const uint8_t *w, __m512i q[4]);
	void (*scales)(const uint8_t *w0, const uint8_t *w1, scale_pair *s);
	int flags, bytes; // of 256 columns
} row_kind;

// four16 gathers four 16-bit words that lie `stride` bytes apart.
INLINE long long four16(const uint8_t *p, int stride) {
	return (long long)((uint64_t)rm_load16(p) | (uint64_t)rm_load16(p + stride) << 16 | (uint64_t)rm_load16(p + 2 * stride) << 32 |
	                   (uint64_t)rm_load16(p + 3 * stride) << 48);
}

INLINE void scales_half(const uint8_t *w0, const uint8_t *w1, int stride, scale_pair *s) {
	s->s = _mm512_cvtph_ps(_mm256_set_epi64x(four16(w1 + 4 * stride, stride), four16(w1, stride), four16(w0 + 4 * stride, stride),
	                                         four16(w0, stride)));
}

INLINE void scales_q8_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { scales_half(w0, w1, 34, s); }

INLINE void unpack_q8_0(const uint8_t *w, __m512i q[4]) {
	for (int i = 0; i < 4; i++) {
		q[i] = _mm512_xor_si512(twice(w + 68 * i + 2, w + 68 * i + 36), _mm512_set1_epi8((char)0x80));
	}
}

// nibbles2 spreads two times 16 bytes: low nibbles first, then high ones.
INLINE __m512i nibbles2(const uint8_t *a, const uint8_t *b) {
	__m512i v = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load128(a)), 0xff00, load128(b));
	__m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
	return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

INLINE void scales_q4_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { scales_half(w0, w1, 18, s); }

INLINE void unpack_q4_0(const uint8_t *w, __m512i q[4]) {
	for (int i = 0; i < 4; i++) {
		q[i] = _mm512_add_epi8(nibbles2(w + 36 * i + 2, w + 36 * i + 20), _mm512_set1_epi8(120));
	}
}

INLINE void unpack_iq4_nl(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_iq4nl_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 36 * i + 2, w + 36 * i + 20));
}

INLINE void unpack_mxfp4(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_mxfp4_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 34 * i + 1, w + 34 * i + 18));
}

INLINE void scales_mxfp4(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	// As words and not as bytes: gcc builds a vector of 16 bytes through memory, three times as slow.
	__m512i e = _mm512_cvtepu16_epi32(_mm256_set_epi64x(four16(w1 + 4 * 17, 17), four16(w1, 17), four16(w0 + 4 * 17, 17), four16(w0, 17)));
	e = _mm512_and_si512(e, _mm512_set1_epi32(255));
	// 2^(e-128), subnormal for e of 0 and 1: rm_mxfp4_scale.
	__m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
	__mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
	s->s = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

INLINE void unpack_iq4_xs(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_iq4nl_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 32 * i + 8, w + 32 * i + 24));
}

// two32 has a in lanes 0..7 and b in lanes 8..15.
INLINE __m512i two32(uint32_t a, uint32_t b) { return _mm512_mask_set1_epi32(_mm512_set1_epi32((int)a), 0xff00, (int)b); }

// super_scales broadcasts the one or two float16 values at the start of a
// super-block, for two rows: the low ones to `first`, the high ones to
// `second`.
INLINE void super_scales(const uint8_t *at0, const uint8_t *at1, __m512 *first, __m512 *second) {
	__m128 f = _mm_cvtph_ps(_mm_set_epi32(0, 0, (int)rm_load32(at1), (int)rm_load32(at0)));
	__m512 v = _mm512_castps128_ps512(f);
	__m512i low = _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
	*first = _mm512_permutexvar_ps(low, v);
	if (second) *second = _mm512_permutexvar_ps(_mm512_add_epi32(low, _mm512_set1_epi32(1)), v);
}

INLINE __m512 super_scale16(const uint8_t *at0, const uint8_t *at1) {
	__m512 f;
	__m128i h = _mm_cvtsi32_si128((int)(rm_load16(at0) | (uint32_t)rm_load16(at1) << 16));
	__m512i low = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
	f = _mm512_permutexvar_ps(low, _mm512_castps128_ps512(_mm_cvtph_ps(h)));
	return f;
}

INLINE void scales_iq4_xs(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m512i shift4 = both((const int32_t[8]){0, 4, 8, 12, 16, 20, 24, 28}), shift2 = _mm512_srli_epi32(shift4, 1);
	__m512i low = _mm512_and_si512(_mm512_srlv_epi32(two32(rm_load32(w0 + 4), rm_load32(w1 + 4)), shift4), _mm512_set1_epi32(15));
	__m512i high = _mm512_and_si512(_mm512_srlv_epi32(two32(rm_load16(w0 + 2), rm_load16(w1 + 2)), shift2), _mm512_set1_epi32(3));
	__m512i sc = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
	s->s = _mm512_mul_ps(super_scale16(w0, w1), _mm512_cvtepi32_ps(sc));
}

// A byte of Q4_K holds a weight of one group in its low nibble and one of the
// next group in its high nibble; the high one is used in place, sixteen times
// too large.
INLINE void unpack_q4_k(const uint8_t *w, __m512i q[4]) {
	for (int j = 0; j < 4; j++) q[j] = _mm512_and_si512(both(w + 16 + 32 * j), halves8(0x0f, 0xf0));
}

// scales_q4_k decodes d, dmin and 12 bytes of scales and minima (rm_q4k_scale).
INLINE void scales_q4_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(w0)), load128(w1), 1);
	__m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(h, 0xed), _mm256_set_epi32(4, 0, 0, 0, 4, 0, 0, 0)); // dwords 1 3 2 3
	low = _mm256_and_si256(low, _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f));
	__m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(h, 0xa5), 2); // dwords 1 1 2 2
	low = _mm256_ternarylogic_epi32(_mm256_set1_epi64x(0x3030303000000000), high, low, 0xea);
	low = _mm256_permute4x64_epi64(low, 0xd8);
	__m512 d, dmin;
	super_scales(w0, w1, &d, &dmin);
	s->s = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(low))));
	s->m0 = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(low, 1))));
}

INLINE void unpack_q5_k(const uint8_t *w, __m512i q[4]) {
	__m512i h = both(w + 16);
	__m512i fifth[4] = {_mm512_sllv_epi16(h, halves16(4, 3)), _mm512_sllv_epi16(h, halves16(2, 1)),
	                    _mm512_srlv_epi16(h, halves16(0, 1)), _mm512_srlv_epi16(h, halves16(2, 3))};
	for (int j = 0; j < 4; j++) {
		__m512i v = _mm512_srlv_epi16(both(w + 48 + 32 * j), halves16(0, 4));
		q[j] = _mm512_and_si512(pick(_mm512_set1_epi8(15), v, fifth[j]), _mm512_set1_epi8(31));
	}
}

// EACH_SINGLE_SCALE lists the types: name, number, row_kind.
#define EACH_SINGLE_SCALE(F) \
	F(q8_0, RM_Q8_0, (row_kind){unpack_q8_0, scales_q8_0, OFFSET, 272}) \
	F(q4_0, RM_Q4_0, (row_kind){unpack_q4_0, scales_q4_0, OFFSET, 144}) \
	F(iq4_nl, RM_IQ4_NL, (row_kind){unpack_iq4_nl, scales_q4_0, OFFSET, 144}) \
	F(mxfp4, RM_MXFP4, (row_kind){unpack_mxfp4, scales_mxfp4, OFFSET, 136}) \
	F(iq4_xs, RM_IQ4_XS, (row_kind){unpack_iq4_xs, scales_iq4_xs, OFFSET, 136}) \
	F(q4_k, RM_Q4_K, (row_kind){unpack_q4_k, scales_q4_k, MIN32 | SHIFT, 144}) \
	F(q5_k, RM_Q5_K, (row_kind){unpack_q5_k, scales_q4_k, MIN32, 176})
