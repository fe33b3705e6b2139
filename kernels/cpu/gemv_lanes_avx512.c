// GEMV with 16 rows in the lanes of vectors, at the AVX-512 level.
//
// Bytes are multiplied with vpdpbusd by the two bytes of the activations; offsets are
// subtracted from the integer results by means of the sums that rm_act holds.
#include "gemv_lanes.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX512

#define INLINE static inline __attribute__((always_inline))
#define LANES 16

typedef __m512i lint;
typedef __m512 lfloat;
INLINE lint l_set8(int v) { return _mm512_set1_epi8((char)v); }
INLINE lint l_set32(int v) { return _mm512_set1_epi32(v); }
INLINE lint l_and(lint a, lint b) { return _mm512_and_si512(a, b); }
INLINE lint l_or(lint a, lint b) { return _mm512_or_si512(a, b); }
INLINE lint l_xor(lint a, lint b) { return _mm512_xor_si512(a, b); }
INLINE lint l_pick(lint mask, lint a, lint b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
// Shifts are written with operators: the intrinsics take constants only where nothing is optimised.
typedef uint16_t words __attribute__((vector_size(64)));
typedef uint32_t dwords __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
INLINE lint l_sll16(lint v, int n) { return (lint)((words)v << n); }
INLINE lint l_srl16(lint v, int n) { return (lint)((words)v >> n); }
INLINE lint l_sll32(lint v, int n) { return (lint)((dwords)v << n); }
INLINE lint l_srl32(lint v, int n) { return (lint)((dwords)v >> n); }
INLINE lint l_sra32(lint v, int n) { return (lint)((ints)v >> n); }
INLINE lint l_sub8(lint a, lint b) { return _mm512_sub_epi8(a, b); }
INLINE lint l_sub32(lint a, lint b) { return _mm512_sub_epi32(a, b); }
INLINE lint l_table(const int8_t *values) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)values)); }
INLINE lint l_shuffle(lint table, lint v) { return _mm512_shuffle_epi8(table, v); }
INLINE lfloat l_float(lint v) { return _mm512_cvtepi32_ps(v); }
INLINE lfloat l_zero(void) { return _mm512_setzero_ps(); }
INLINE lfloat l_set(float v) { return _mm512_set1_ps(v); }
INLINE lfloat l_add(lfloat a, lfloat b) { return _mm512_add_ps(a, b); }
INLINE lfloat l_mul(lfloat a, lfloat b) { return _mm512_mul_ps(a, b); }
INLINE lfloat l_fma(lfloat a, lfloat b, lfloat c) { return _mm512_fmadd_ps(a, b, c); }
INLINE lfloat l_fnma(lfloat a, lfloat b, lfloat c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE void l_store(float *out, lfloat v) { _mm512_storeu_ps(out, v); }

// l_sub gives the signed byte i%4 of k[i/4] in each lane.
INLINE lint l_sub(const lint k[4], int i) { return l_sra32(l_sll32(k[i / 4], 24 - 8 * (i % 4)), 24); }

// l_low_half converts the float16 in the low half of each lane.
INLINE lfloat l_low_half(lint v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

// l_exponents is rm_mxfp4_scale of each lane.
INLINE lfloat l_exponents(lint e) {
	__m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
	__mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
	return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

// l_join is 16 bytes from each of four addresses. (An insert of 128 bits from memory into
// a 512-bit vector takes twice as long.)
INLINE lint l_join(const uint8_t *const p[4]) {
	__m128i v[4];
	for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128((const __m128i *)(const void *)p[i]);
	__m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1);
	__m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(v[2]), v[3], 1);
	return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
INLINE lint l_low32(lint a, lint b) { return _mm512_unpacklo_epi32(a, b); }
INLINE lint l_high32(lint a, lint b) { return _mm512_unpackhi_epi32(a, b); }
INLINE lint l_low64(lint a, lint b) { return _mm512_unpacklo_epi64(a, b); }
INLINE lint l_high64(lint a, lint b) { return _mm512_unpackhi_epi64(a, b); }

typedef rm_act l_token;
// l_token_at is token n of those from `first` on.
INLINE l_token l_token_at(const rm_tile *t, int64_t first, int n) { return rm_act_at(t->x[first + n], t->cols); }

typedef struct {
	lint q[8], k0, k1;
} l_weights;

INLINE void l_ready(int flags, int shift, const lint q[8], const lint k[4], int l, l_weights *w) {
	(void)shift;
	for (int i = 0; i < 8; i++) w->q[i] = q[i];
	if (flags & L_SUB) {
		w->k0 = l_sub(k, 2 * l);
		w->k1 = l_sub(k, 2 * l + 1);
	}
}

// dot is start plus the dot products of n vectors and activations.
INLINE lint dot(const lint *q, int n, const int8_t *upper, const int8_t *lower, int32_t start, int flags) {
	lint u = _mm512_setzero_si512(), v = _mm512_set1_epi32(start);
	RM_UNROLL
	for (int i = 0; i < n; i++) {
		u = _mm512_dpbusd_epi32(u, q[i], _mm512_set1_epi32((int)rm_load32(upper + 4 * i)));
		if (!(flags & L_UPPER)) v = _mm512_dpbusd_epi32(v, q[i], _mm512_set1_epi32((int)rm_load32(lower + 4 * i)));
	}
	return _mm512_add_epi32(_mm512_slli_epi32(u, 7), v);
}

INLINE lint l_dots(int flags, int offset, int shift, const l_weights *w, const l_token *x, int64_t g) {
	const int8_t *upper = x->q + 32 * g, *lower = x->r + 32 * g;
	lint t;
	if (flags & L_SUB) {
		// rm_act holds -32 times the sums; with L_SHIFT the offset is 4, as often too large as the group.
		int by = flags & L_SHIFT ? 3 - shift : 0, add = flags & L_OFFSET16;
		lint a = dot(w->q, 4, upper, lower, add ? x->z0[g] >> by : 0, flags);
		lint b = dot(w->q + 4, 4, upper + 16, lower + 16, add ? x->z1[g] >> by : 0, flags);
		t = _mm512_add_epi32(_mm512_mullo_epi32(a, w->k0), _mm512_mullo_epi32(b, w->k1));
	} else {
		t = dot(w->q, 8, upper, lower, flags & L_OFFSET ? x->z[g] >> offset : 0, flags);
	}
	return shift ? l_sra32(t, shift) : t;
}

#include "gemv_lanes.inc.h"

#define DEFINE_LANES(name, type, ...) \
	static int64_t lanes_##name(const rm_tile *t) { return t->upper_only ? run_lanes(upper(__VA_ARGS__), t) : run_lanes(__VA_ARGS__, t); }
EACH_LANES(DEFINE_LANES)

RM_END_TARGET

#define ENTRY(name, type, ...) [type] = lanes_##name,
const rm_lanes_fn rm_lanes_avx512[RM_TYPES] = {EACH_LANES(ENTRY)};
#endif
