// Kernels on 256-bit vectors, included by matmul_avx2.c and matmul_avx512.c
// inside their target section. The including file defines dot_u8: the products
// of unsigned bytes of at most 128 and signed bytes in [-127, 127], summed in
// groups of four to 8 int32.

#include "load_avx2.inc.h"
#include "sums_avx.inc.h"

// super is 256 weights of a row unpacked: 8 groups of 32.
typedef struct {
	__m256i q[8];     // bytes: unsigned for KIND_U and KIND_UK, else signed
	__m256i k[8];     // int16 scales, KIND_UK and KIND_SK
	__m256 s, m0, m1; // float scales and negated minima by group
} super;

// The contents of q and how they are multiplied by the activations.
enum {
	KIND_U,  // unsigned bytes
	KIND_S,  // signed bytes
	KIND_UK, // unsigned bytes, an integer scale per 16
	KIND_SK, // signed bytes, an integer scale per 16
};

enum { MIN_NONE, MIN_32, MIN_16 };

// unpack_fn reads n <= 8 groups (always 8 for types with blocks of 256).
typedef void (*unpack_fn)(const uint8_t *w, int n, super *u);

// halves8 converts 8 float16 that are `stride` bytes apart; from n on the
// result is zero.
INLINE __m256 halves8(const uint8_t *p, int stride, int n) {
	uint16_t h[8];
	if (n == 8) {
		for (int i = 0; i < 8; i++) h[i] = rm_load16(p + i * stride);
	} else {
		for (int i = 0; i < 8; i++) h[i] = i < n ? rm_load16(p + i * stride) : 0;
	}
	return _mm256_cvtph_ps(_mm_set_epi16((short)h[7], (short)h[6], (short)h[5], (short)h[4], (short)h[3], (short)h[2],
	                                     (short)h[1], (short)h[0]));
}

// nibbles spreads 16 bytes: low nibbles to bytes 0..15, high ones to 16..31.
INLINE __m256i nibbles(const uint8_t *p) {
	__m128i v = load128(p);
	__m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
	return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// bits32 expands 32 bits to bytes of 0xff or 0.
INLINE __m256i bits32(uint32_t bits) {
	__m256i spread = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
	__m256i select = _mm256_set1_epi64x((long long)0x8040201008040201);
	__m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
	return _mm256_cmpeq_epi8(_mm256_and_si256(v, select), select);
}

#define FOR_GROUPS(i, n) \
	for (int i = 0; i < 8; i++) \
		if (i >= n) { \
			u->q[i] = _mm256_setzero_si256(); \
		} else

INLINE void unpack_q8_0(const uint8_t *w, int n, super *u) {
	u->s = halves8(w, 34, n);
	FOR_GROUPS(i, n) u->q[i] = load256(w + 34 * i + 2);
}

INLINE void unpack_q4_0(const uint8_t *w, int n, super *u) {
	u->s = halves8(w, 18, n);
	FOR_GROUPS(i, n) u->q[i] = _mm256_sub_epi8(nibbles(w + 18 * i + 2), _mm256_set1_epi8(8));
}

INLINE void unpack_q4_1(const uint8_t *w, int n, super *u) {
	u->s = halves8(w, 20, n);
	u->m0 = halves8(w + 2, 20, n);
	FOR_GROUPS(i, n) u->q[i] = nibbles(w + 20 * i + 4);
}

INLINE __m256i five(uint32_t high, const uint8_t *q) {
	return _mm256_or_si256(nibbles(q), _mm256_and_si256(bits32(high), _mm256_set1_epi8(16)));
}

INLINE void unpack_q5_0(const uint8_t *w, int n, super *u) {
	u->s = halves8(w, 22, n);
	FOR_GROUPS(i, n) {
		__m256i q = five(rm_load32(w + 22 * i + 2), w + 22 * i + 6);
		u->q[i] = _mm256_sub_epi8(q, _mm256_set1_epi8(16));
	}
}

INLINE void unpack_q5_1(const uint8_t *w, int n, super *u) {
	u->s = halves8(w, 24, n);
	u->m0 = halves8(w + 2, 24, n);
	FOR_GROUPS(i, n) u->q[i] = five(rm_load32(w + 24 * i + 4), w + 24 * i + 8);
}

INLINE void unpack_iq4_nl(const uint8_t *w, int n, super *u) {
	__m256i table = table32(rm_iq4nl_values);
	u->s = halves8(w, 18, n);
	FOR_GROUPS(i, n) u->q[i] = _mm256_shuffle_epi8(table, nibbles(w + 18 * i + 2));
}

INLINE void unpack_mxfp4(const uint8_t *w, int n, super *u) {
	__m256i table = table32(rm_mxfp4_values);
	FOR_GROUPS(i, n) u->q[i] = _mm256_shuffle_epi8(table, nibbles(w + 17 * i + 1));
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++) bytes |= (uint64_t)w[17 * i] << (8 * i);
	__m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
	__m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
	__m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
	__m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
	u->s = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

// scale_min_k fills s and m0 of Q4_K and Q5_K.
INLINE void scale_min_k(const uint8_t *w, super *u) {
	__m128i sc = scales_k(w + 4);
	__m256 d = half1(w), dmin = half1(w + 2);
	u->s = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sc)));
	__m256 least = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(sc, 8))));
	u->m0 = _mm256_xor_ps(least, _mm256_set1_ps(-0.0f));
}

INLINE void unpack_q4_k(const uint8_t *w, int n, super *u) {
	(void)n;
	scale_min_k(w, u);
	__m256i low = _mm256_set1_epi8(15);
	for (int j = 0; j < 4; j++) {
		__m256i v = load256(w + 16 + 32 * j);
		u->q[2 * j] = _mm256_and_si256(v, low);
		u->q[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
	}
}

INLINE void unpack_q5_k(const uint8_t *w, int n, super *u) {
	(void)n;
	scale_min_k(w, u);
	__m256i low = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16), h = load256(w + 16);
	for (int j = 0; j < 4; j++) {
		__m256i v = load256(w + 48 + 32 * j);
		__m256i h0 = j < 2 ? _mm256_slli_epi16(h, j < 2 ? 4 - 2 * j : 0) : _mm256_srli_epi16(h, j < 2 ? 0 : 2 * j - 4);
		__m256i h1 = j < 2 ? _mm256_slli_epi16(h, j < 2 ? 3 - 2 * j : 0) : _mm256_srli_epi16(h, j < 2 ? 0 : 2 * j - 3);
		u->q[2 * j] = _mm256_or_si256(_mm256_and_si256(v, low), _mm256_and_si256(h0, sixteen));
		u->q[2 * j + 1] =
			_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 4), low), _mm256_and_si256(h1, sixteen));
	}
}

// spread_scales expands 16 int16 scales to the eight vectors that madd needs:
// vector g has scale 2g in its low eight lanes and 2g+1 in its high eight.
INLINE void spread_scales(__m256i sc, super *u) {
	__m256i a = _mm256_permute2x128_si256(sc, sc, 0x00), b = _mm256_permute2x128_si256(sc, sc, 0x11);
	for (int g = 0; g < 4; g++) {
		__m256i pick = _mm256_set_m128i(_mm_set1_epi16((short)((4 * g + 2) | (4 * g + 3) << 8)),
		                                _mm_set1_epi16((short)((4 * g) | (4 * g + 1) << 8)));
		u->k[g] = _mm256_shuffle_epi8(a, pick);
		u->k[4 + g] = _mm256_shuffle_epi8(b, pick);
	}
}

INLINE void unpack_q2_k(const uint8_t *w, int n, super *u) {
	(void)n;
	__m128i sc = load128(w), low = _mm_set1_epi8(15);
	spread_scales(_mm256_cvtepu8_epi16(_mm_and_si128(sc, low)), u);
	// Minima of the even sub-blocks to the low eight bytes, odd to the high.
	__m128i least = _mm_and_si128(_mm_srli_epi16(sc, 4), low);
	least = _mm_shuffle_epi8(least, _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0));
	u->s = half1(w + 80);
	__m256 dmin = _mm256_xor_ps(half1(w + 82), _mm256_set1_ps(-0.0f));
	u->m0 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(least)));
	u->m1 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(least, 8))));
	__m256i three = _mm256_set1_epi8(3);
	for (int h = 0; h < 2; h++) {
		__m256i v = load256(w + 16 + 32 * h);
		u->q[4 * h] = _mm256_and_si256(v, three);
		u->q[4 * h + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 2), three);
		u->q[4 * h + 2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), three);
		u->q[4 * h + 3] = _mm256_and_si256(_mm256_srli_epi16(v, 6), three);
	}
}

INLINE void unpack_q3_k(const uint8_t *w, int n, super *u) {
	(void)n;
	int16_t sc[16];
	for (int i = 0; i < 16; i++) sc[i] = (int16_t)(rm_q3k_scale(w + 96, i) - 32);
	spread_scales(load256(sc), u);
	u->s = half1(w + 108);
	__m256i mask = load256(w), three = _mm256_set1_epi8(3), four = _mm256_set1_epi8(4);
	for (int g = 0; g < 8; g++) {
		__m256i v = _mm256_srl_epi16(load256(w + 32 + 32 * (g / 4)), _mm_cvtsi32_si128(2 * (g % 4)));
		// 4 where the bit is clear
		__m256i bit = _mm256_set1_epi8((char)(1 << g));
		__m256i clear = _mm256_andnot_si256(_mm256_cmpeq_epi8(_mm256_and_si256(mask, bit), bit), four);
		u->q[g] = _mm256_sub_epi8(_mm256_and_si256(v, three), clear);
	}
}

INLINE void unpack_q6_k(const uint8_t *w, int n, super *u) {
	(void)n;
	spread_scales(_mm256_cvtepi8_epi16(load128(w + 192)), u);
	u->s = half1(w + 208);
	__m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30), bias = _mm256_set1_epi8(32);
	for (int h = 0; h < 2; h++) {
		__m256i a = load256(w + 64 * h), b = load256(w + 64 * h + 32), v = load256(w + 128 + 32 * h);
		__m256i q0 = _mm256_or_si256(_mm256_and_si256(a, low), _mm256_and_si256(_mm256_slli_epi16(v, 4), high));
		__m256i q1 = _mm256_or_si256(_mm256_and_si256(b, low), _mm256_and_si256(_mm256_slli_epi16(v, 2), high));
		__m256i q2 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 4), low), _mm256_and_si256(v, high));
		__m256i q3 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), low),
		                             _mm256_and_si256(_mm256_srli_epi16(v, 2), high));
		u->q[4 * h] = _mm256_sub_epi8(q0, bias);
		u->q[4 * h + 1] = _mm256_sub_epi8(q1, bias);
		u->q[4 * h + 2] = _mm256_sub_epi8(q2, bias);
		u->q[4 * h + 3] = _mm256_sub_epi8(q3, bias);
	}
}

INLINE void unpack_iq2_xxs(const uint8_t *w, int n, super *u) {
	(void)n;
	uint32_t word[8];
	for (int g = 0; g < 8; g++) {
		const uint8_t *i = w + 2 + 8 * g;
		word[g] = rm_load32(i + 4);
		__m256i grid = _mm256_set_epi64x((long long)rm_iq2xxs_grid[i[3]], (long long)rm_iq2xxs_grid[i[2]],
		                                 (long long)rm_iq2xxs_grid[i[1]], (long long)rm_iq2xxs_grid[i[0]]);
		uint32_t v = word[g];
		__m256i sign = _mm256_set_epi64x((long long)rm_sign_bytes[v >> 21 & 127], (long long)rm_sign_bytes[v >> 14 & 127],
		                                 (long long)rm_sign_bytes[v >> 7 & 127], (long long)rm_sign_bytes[v & 127]);
		u->q[g] = _mm256_sign_epi8(grid, sign);
	}
	__m256 scale = _mm256_cvtepi32_ps(_mm256_srli_epi32(load256(word), 28));
	scale = _mm256_mul_ps(half1(w), _mm256_add_ps(scale, _mm256_set1_ps(0.5f)));
	u->s = _mm256_mul_ps(scale, _mm256_set1_ps(0.25f));
}

INLINE void unpack_iq4_xs(const uint8_t *w, int n, super *u) {
	(void)n;
	__m256i table = table32(rm_iq4nl_values);
	for (int g = 0; g < 8; g++) u->q[g] = _mm256_shuffle_epi8(table, nibbles(w + 8 + 16 * g));
	__m256i shift4 = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0), shift2 = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
	__m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)rm_load32(w + 4)), shift4);
	__m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(rm_load16(w + 2)), shift2);
	__m256i sc = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
	                             _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
	u->s = _mm256_mul_ps(half1(w), _mm256_cvtepi32_ps(_mm256_sub_epi32(sc, _mm256_set1_epi32(32))));
}

// dot32 is the integer dot product of group g as 8 partial sums.
INLINE __m256i dot32(const super *u, int kind, int g, __m256i a) {
	switch (kind) {
	case KIND_U:
		return dot_u8(u->q[g], a);
	case KIND_S:
		return dot_u8(_mm256_abs_epi8(u->q[g]), _mm256_sign_epi8(a, u->q[g]));
	case KIND_UK:
		return _mm256_madd_epi16(_mm256_maddubs_epi16(u->q[g], a), u->k[g]);
	default: // KIND_SK
		return _mm256_madd_epi16(
			_mm256_maddubs_epi16(_mm256_abs_epi8(u->q[g]), _mm256_sign_epi8(a, u->q[g])), u->k[g]);
	}
}

// dots8 gives the dot products of the 8 groups from g0 on as one vector.
INLINE __m256i dots8(const super *u, int kind, int upper_only, const rm_act *a, int64_t g0) {
	__m256i t[8];
	for (int g = 0; g < 8; g++) {
		__m256i upper = dot32(u, kind, g, load256(a->q + 32 * (g0 + g)));
		t[g] = _mm256_slli_epi32(upper, 7);
		if (!upper_only) t[g] = _mm256_add_epi32(t[g], dot32(u, kind, g, load256(a->r + 32 * (g0 + g))));
	}
	__m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(t[0], t[1]), _mm256_hadd_epi32(t[2], t[3]));
	__m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(t[4], t[5]), _mm256_hadd_epi32(t[6], t[7]));
	return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

// add_super adds 256 columns (groups g0..g0+7) to the lanes of one output.
INLINE __m256 add_super(__m256 acc, const super *u, int kind, int min, int upper_only, const rm_act *a, int64_t g0) {
	if (min == MIN_32) acc = _mm256_fmadd_ps(u->m0, _mm256_loadu_ps(a->b + g0), acc);
	if (min == MIN_16) {
		acc = _mm256_fmadd_ps(u->m0, _mm256_loadu_ps(a->b0 + g0), acc);
		acc = _mm256_fmadd_ps(u->m1, _mm256_loadu_ps(a->b1 + g0), acc);
	}
	__m256 t = _mm256_cvtepi32_ps(dots8(u, kind, upper_only, a, g0));
	return _mm256_fmadd_ps(_mm256_mul_ps(u->s, _mm256_loadu_ps(a->d + g0)), t, acc);
}

// PREFETCH is the prefetch distance in bytes of weights that are read; it reaches
// into the next rows. Hardware prefetching alone
// reaches less than half of the memory bandwidth here: decode of the bench
// model went from 4.8 to 6.8 tokens a second on one thread (6.0, 6.4, 6.7 and
// 6.8 with 1, 2, 4 and 8 KiB).
#define PREFETCH 8192

// row_dots is weight row r times the nt tokens from token first on; bytes is the size of 256
// columns, next where weights are prefetched, far whether into the second-level cache only.
INLINE void row_dots(unpack_fn unpack, int kind, int min, int bytes, int far, const rm_tile *t, int64_t r, const rm_ahead *next,
                     int upper_only, const rm_act *a, int64_t first, int nt) {
	const uint8_t *w = t->w + r * t->row_bytes;
	int64_t cols = t->cols, time = 0, at = rm_sums_at(&t->sums);
	__m256 acc[4];
	for (int i = 0; i < nt; i++) acc[i] = _mm256_setzero_ps();
	super u;
	for (int64_t g = 0; 32 * g < cols; g += 8, w += bytes) {
		if (g == at) {
			for (int i = 0; i < nt; i++) {
				give_lanes(t, r, (int)(first + i), time, acc[i]);
				acc[i] = _mm256_setzero_ps();
			}
			time++;
			at += 8 * t->sums.supers;
		}
		rm_prefetch((uintptr_t)w + rm_ahead_from(next, g / 8 * bytes), bytes, far);
		int64_t left = (cols - 32 * g) / 32;
		if (left >= 8) {
			unpack(w, 8, &u);
		} else {
			unpack(w, (int)left, &u);
		}
		for (int i = 0; i < nt; i++) acc[i] = add_super(acc[i], &u, kind, min, upper_only, &a[i], g);
	}
	for (int i = 0; i < nt; i++) give_lanes(t, r, (int)(first + i), time, acc[i]);
}

// rows_dots computes a tile by rows: each row is unpacked once for four tokens.
INLINE void rows_dots(unpack_fn unpack, int kind, int min, int bytes, int far, int upper_only, const rm_tile *t) {
	int64_t i = 0;
	rm_ahead next = rm_ahead_of((t->cols + 255) / 256 * bytes, t->row_bytes, PREFETCH);
	for (; i + 4 <= t->nx; i += 4) {
		rm_act a[4];
		for (int j = 0; j < 4; j++) a[j] = rm_act_at(t->x[i + j], t->cols);
		for (int64_t r = 0; r < t->nrows; r++) row_dots(unpack, kind, min, bytes, far, t, r, &next, upper_only, a, i, 4);
	}
	for (; i < t->nx; i++) {
		rm_act a = rm_act_at(t->x[i], t->cols);
		for (int64_t r = 0; r < t->nrows; r++) row_dots(unpack, kind, min, bytes, far, t, r, &next, upper_only, &a, i, 1);
	}
}

// EACH_TYPE lists the types: name, number, kind, minima, bytes of 256 columns.
#define EACH_TYPE(F) \
	F(q8_0, RM_Q8_0, KIND_S, MIN_NONE, 272) \
	F(q4_0, RM_Q4_0, KIND_S, MIN_NONE, 144) \
	F(q4_1, RM_Q4_1, KIND_U, MIN_32, 160) \
	F(q5_0, RM_Q5_0, KIND_S, MIN_NONE, 176) \
	F(q5_1, RM_Q5_1, KIND_U, MIN_32, 192) \
	F(iq4_nl, RM_IQ4_NL, KIND_S, MIN_NONE, 144) \
	F(mxfp4, RM_MXFP4, KIND_S, MIN_NONE, 136) \
	F(q2_k, RM_Q2_K, KIND_UK, MIN_16, 84) \
	F(q3_k, RM_Q3_K, KIND_SK, MIN_NONE, 110) \
	F(q4_k, RM_Q4_K, KIND_U, MIN_32, 144) \
	F(q5_k, RM_Q5_K, KIND_U, MIN_32, 176) \
	F(q6_k, RM_Q6_K, KIND_SK, MIN_NONE, 210) \
	F(iq2_xxs, RM_IQ2_XXS, KIND_S, MIN_NONE, 66) \
	F(iq4_xs, RM_IQ4_XS, KIND_S, MIN_NONE, 136)

#define DEFINE_ROWS(name, type, kind, min, bytes) \
	static void rows_##name(const rm_tile *t) { \
		switch (2 * (type == RM_Q8_0 && rm_prefetch_far()) + t->upper_only) { \
		case 0: rows_dots(unpack_##name, kind, min, bytes, 0, 0, t); break; \
		case 1: rows_dots(unpack_##name, kind, min, bytes, 0, 1, t); break; \
		case 2: rows_dots(unpack_##name, kind, min, bytes, 1, 0, t); break; \
		default: rows_dots(unpack_##name, kind, min, bytes, 1, 1, t); \
		} \
	}

// bytes32 narrows 32 small integers to bytes. The pack instructions work within
// 128-bit halves; the permutation restores the order.
INLINE __m256i bytes32(const __m256i n[4]) {
	__m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
	return _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

// quantise fills an rm_act row.
static void quantise(const float *x, int64_t cols, void *row, int upper_only) {
	rm_act a = rm_act_at(row, cols);
	for (int64_t g = 0; g < a.groups; g++) {
		if (32 * g >= cols) {
			_mm256_storeu_si256((__m256i *)(void *)(a.q + 32 * g), _mm256_setzero_si256());
			_mm256_storeu_si256((__m256i *)(void *)(a.r + 32 * g), _mm256_setzero_si256());
			rm_act_finish(&a, g, 0, 0, 0);
			continue;
		}
		__m256 v[4];
		__m256i largest = _mm256_setzero_si256(), magnitude = _mm256_set1_epi32(0x7fffffff);
		for (int i = 0; i < 4; i++) {
			v[i] = _mm256_loadu_ps(x + 32 * g + 8 * i);
			largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
		}
		__m128i m = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
		m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
		m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
		float inverse, d = rm_act_scale((uint32_t)_mm_cvtsi128_si32(m), upper_only, &inverse);
		__m256i n[4];
		for (int i = 0; i < 4; i++) {
			n[i] = d == d ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse))) : _mm256_setzero_si256();
			if (upper_only) n[i] = _mm256_slli_epi32(n[i], 7);
		}
		__m256i upper[4], lower[4], half = _mm256_set1_epi32(64);
		for (int i = 0; i < 4; i++) {
			upper[i] = _mm256_srai_epi32(_mm256_add_epi32(n[i], half), 7);
			lower[i] = _mm256_sub_epi32(n[i], _mm256_slli_epi32(upper[i], 7));
		}
		_mm256_storeu_si256((__m256i *)(void *)(a.q + 32 * g), bytes32(upper));
		_mm256_storeu_si256((__m256i *)(void *)(a.r + 32 * g), bytes32(lower));
		// Sums of the two halves of the group, in lanes 0 and 4.
		__m256i first = _mm256_add_epi32(n[0], n[1]), last = _mm256_add_epi32(n[2], n[3]);
		__m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(first, last, 0x20), _mm256_permute2x128_si256(first, last, 0x31));
		sums = _mm256_hadd_epi32(sums, sums);
		sums = _mm256_hadd_epi32(sums, sums);
		rm_act_finish(&a, g, d, _mm256_extract_epi32(sums, 0), _mm256_extract_epi32(sums, 4));
	}
}

// widen converts a row of any type to float32.
static void widen(int32_t type, const uint8_t *src, float *dst, int64_t n) {
	int64_t i = 0;
	if (type == RM_F16) {
		for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(load128(src + 2 * i)));
	} else if (type == RM_BF16) {
		for (; i + 8 <= n; i += 8) {
			__m256i v = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(src + 2 * i)), 16);
			_mm256_storeu_si256((__m256i *)(void *)(dst + i), v);
		}
	} else if (type == RM_NVFP4) {
		for (; i < n; i += 64) {
			__m256 w[8];
			load_nvfp4(src + i / 64 * 36, w);
			for (int k = 0; k < 8; k++) _mm256_storeu_ps(dst + i + 8 * k, w[k]);
		}
		return;
	}
	rm_dequant_row(type, i > 0 ? src + 2 * i : src, dst + i, n - i);
}

static void narrow(const float *src, uint16_t *dst, int64_t n) {
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
		_mm_storeu_si128((__m128i *)(void *)(dst + i), h);
	}
	for (; i < n; i++) dst[i] = rm_float_to_float16(src[i]);
}

static void glu(float *mid, const float *g, const float *u, int64_t n, float weight, float clamp) {
	int64_t i = 0;
	__m256 high = _mm256_set1_ps(clamp > 1e-6f ? clamp : INFINITY);
	__m256 low = _mm256_xor_ps(high, _mm256_set1_ps(-0.0f)), factor = _mm256_set1_ps(weight);
	for (; i + 8 <= n; i += 8) {
		// With the operands in this order a NaN is kept.
		__m256 a = _mm256_min_ps(high, _mm256_loadu_ps(g + i));
		__m256 b = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(u + i)));
		_mm256_storeu_ps(mid + i, _mm256_mul_ps(_mm256_mul_ps(factor, rm_silu256(a)), b));
	}
	for (; i < n; i++) mid[i] = rm_glu(g[i], u[i], weight, clamp);
}
