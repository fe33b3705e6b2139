// GEMV with 8 rows in the lanes of vectors, at the AVX2 level.
//
// Weights are widened to int16, with their offsets subtracted and sub-block scales multiplied
// in, and multiplied by the 15-bit activations in one step (vpmaddwd), because without VNNI two
// products of bytes cost as much as one of 16 bits. Only for the types with rows that take the
// longest to unpack is that faster than rows and panels.
#include "gemv_lanes.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX2

#define INLINE static inline __attribute__((always_inline))
#define LANES 8

typedef __m256i lint;
typedef __m256 lfloat;
typedef uint16_t words __attribute__((vector_size(32)));
typedef uint32_t dwords __attribute__((vector_size(32)));
typedef int32_t ints __attribute__((vector_size(32)));
INLINE lint l_set8(int v) { return _mm256_set1_epi8((char)v); }
INLINE lint l_set32(int v) { return _mm256_set1_epi32(v); }
INLINE lint l_and(lint a, lint b) { return _mm256_and_si256(a, b); }
INLINE lint l_or(lint a, lint b) { return _mm256_or_si256(a, b); }
INLINE lint l_xor(lint a, lint b) { return _mm256_xor_si256(a, b); }
INLINE lint l_pick(lint mask, lint a, lint b) { return l_or(l_and(mask, a), _mm256_andnot_si256(mask, b)); }
INLINE lint l_sll16(lint v, int n) { return (lint)((words)v << n); }
INLINE lint l_srl16(lint v, int n) { return (lint)((words)v >> n); }
INLINE lint l_sll32(lint v, int n) { return (lint)((dwords)v << n); }
INLINE lint l_srl32(lint v, int n) { return (lint)((dwords)v >> n); }
INLINE lint l_sra32(lint v, int n) { return (lint)((ints)v >> n); }
INLINE lint l_sub8(lint a, lint b) { return _mm256_sub_epi8(a, b); }
INLINE lint l_sub32(lint a, lint b) { return _mm256_sub_epi32(a, b); }
INLINE lint l_table(const int8_t *values) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values)); }
INLINE lint l_shuffle(lint table, lint v) { return _mm256_shuffle_epi8(table, v); }
INLINE lfloat l_float(lint v) { return _mm256_cvtepi32_ps(v); }
INLINE lfloat l_zero(void) { return _mm256_setzero_ps(); }
INLINE lfloat l_set(float v) { return _mm256_set1_ps(v); }
INLINE lfloat l_add(lfloat a, lfloat b) { return _mm256_add_ps(a, b); }
INLINE lfloat l_mul(lfloat a, lfloat b) { return _mm256_mul_ps(a, b); }
INLINE lfloat l_fma(lfloat a, lfloat b, lfloat c) { return _mm256_fmadd_ps(a, b, c); }
INLINE lfloat l_fnma(lfloat a, lfloat b, lfloat c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE void l_store(float *out, lfloat v) { _mm256_storeu_ps(out, v); }
INLINE lint l_low32(lint a, lint b) { return _mm256_unpacklo_epi32(a, b); }
INLINE lint l_high32(lint a, lint b) { return _mm256_unpackhi_epi32(a, b); }
INLINE lint l_low64(lint a, lint b) { return _mm256_unpacklo_epi64(a, b); }
INLINE lint l_high64(lint a, lint b) { return _mm256_unpackhi_epi64(a, b); }

// l_join is 16 bytes from each of two addresses.
INLINE lint l_join(const uint8_t *const p[2]) {
	__m128i a = _mm_loadu_si128((const __m128i *)(const void *)p[0]), b = _mm_loadu_si128((const __m128i *)(const void *)p[1]);
	return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

// l_low_half converts the float16 in the low half of each lane.
INLINE lfloat l_low_half(lint v) {
	v = l_and(v, l_set32(0xffff));
	return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

// l_exponents is rm_mxfp4_scale of each lane.
INLINE lfloat l_exponents(lint e) {
	lint normal = _mm256_slli_epi32(_mm256_sub_epi32(e, l_set32(1)), 23), small = _mm256_sllv_epi32(l_set32(0x00200000), e);
	return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(l_set32(2), e)));
}

// l_token: of every four columns n holds 0, 2, 1 and 3.
typedef struct {
	const int16_t *n;
	const float *d, *b, *b0, *b1;
	const int32_t *z;
} l_token;

// l_token_at prepares token n of those from `first` on in the scratch of the tile, which
// has room for 16 unpacked rows.
INLINE l_token l_token_at(const rm_tile *t, int64_t first, int n) {
	rm_act a = rm_act_at(t->x[first + n], t->cols);
	int16_t *to = (int16_t *)(void *)t->scratch + t->cols * n;
	__m256i order = _mm256_broadcastsi128_si256(_mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
	for (int64_t i = 0; i < t->cols; i += 16) {
		__m256i q = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(a.q + i)));
		__m256i r = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(a.r + i)));
		q = _mm256_add_epi16(_mm256_slli_epi16(q, 7), r);
		_mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_shuffle_epi8(q, order));
	}
	return (l_token){to, a.d, a.b, a.b0, a.b1, a.z};
}

typedef struct {
	lint w[16]; // columns 0 and 2, then 1 and 3, of each of eight vectors
} l_weights;

// l_sub gives the signed byte i%4 of k[i/4] in both halves of each lane.
INLINE lint l_sub(const lint k[4], int i) {
	lint v = l_sra32(l_sll32(k[i / 4], 24 - 8 * (i % 4)), 24);
	return _mm256_blend_epi16(v, l_sll32(v, 16), 0xaa);
}

INLINE void l_ready(int flags, int shift, const lint q[8], const lint k[4], int l, l_weights *w) {
	lint offset = _mm256_set1_epi16((short)(!(flags & L_OFFSET16) ? 0 : flags & L_SHIFT ? 4 << shift
	                                                                                    : 32));
	for (int i = 0; i < 8; i++) {
		lint v[2] = {l_and(q[i], l_set32(0x00ff00ff)), l_srl16(q[i], 8)};
		for (int h = 0; h < 2; h++) {
			if (flags & L_OFFSET16) v[h] = _mm256_sub_epi16(v[h], offset);
			if (flags & L_SUB) v[h] = _mm256_mullo_epi16(v[h], l_sub(k, 2 * l + i / 4));
			w->w[2 * i + h] = v[h];
		}
	}
}

INLINE lint l_dots(int flags, int offset, int shift, const l_weights *w, const l_token *x, int64_t g) {
	lint t[2] = {l_set32(flags & L_OFFSET ? x->z[g] >> offset : 0), _mm256_setzero_si256()};
	const int16_t *n = x->n + 32 * g;
	RM_UNROLL
	for (int i = 0; i < 16; i++) {
		t[i % 2] = _mm256_add_epi32(t[i % 2], _mm256_madd_epi16(w->w[i], l_set32((int)rm_load32(n + 2 * i))));
	}
	lint sum = _mm256_add_epi32(t[0], t[1]);
	return shift ? l_sra32(sum, shift) : sum;
}

#include "gemv_lanes.inc.h"

#define DEFINE_LANES(name, type, ...) \
	static int64_t lanes_##name(const rm_tile *t) { return run_lanes(__VA_ARGS__, t); }
EACH_SLOW_ROW(DEFINE_LANES)

RM_END_TARGET

#define ENTRY(name, type, ...) [type] = lanes_##name,
const rm_lanes_fn rm_lanes_avx2[RM_TYPES] = {EACH_SLOW_ROW(ENTRY)};
#endif
