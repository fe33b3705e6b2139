// Approximate scores on AMX tiles, from bfloat16 products (TDPBF16PS).
#include "approx_scores.h"
#include "simd.h"
#include "amx_tiles.h"

#if RM_X86
RM_BEGIN_AVX512

#define INLINE static inline __attribute__((always_inline))
#include "transpose_avx512.inc.h"

#define TILE_DOT_BF(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

// sums16 sums the lanes of each of 16 vectors: lane i of the result is the sum
// of v[i].
INLINE __m512 sums16(const __m512 v[16]) {
	__m512 a[8], b[4];
	for (int i = 0; i < 8; i++) {
		a[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
	}
	for (int i = 0; i < 4; i++) {
		__m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
		b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
	}
	__m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(b[0], b[1], 0x88), _mm512_shuffle_f32x4(b[0], b[1], 0xdd));
	__m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(b[2], b[3], 0x88), _mm512_shuffle_f32x4(b[2], b[3], 0xdd));
	return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

// The columns of a chunk are paired: column i is next to column 16+i. pairs
// truncates 32 floats to bfloat16.
INLINE __m512i pairs(__m512 f0, __m512 f1) {
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_castps_si512(f0), 16), _mm512_castps_si512(f1));
}

// split writes one key, in chunks of 32 columns, and returns the sum of its
// squares per lane. A float16 has 11 significant bits, the upper 16 bits of a
// float32 have 8.
INLINE __m512 split(uint16_t *to, const uint16_t *key, int64_t dim) {
	__m512 high = _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000));
	__m512 squares = _mm512_setzero_ps();
	for (int64_t d = 0; d < dim; d += 32, to += 2 * 32 * 32) {
		__m512 f0 = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(key + d)));
		__m512 f1 = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(key + d + 16)));
		__m512 l0 = _mm512_sub_ps(f0, _mm512_and_ps(f0, high)), l1 = _mm512_sub_ps(f1, _mm512_and_ps(f1, high));
		_mm512_store_si512(to, pairs(f0, f1));
		_mm512_store_si512(to + 32 * 32, pairs(l0, l1));
		squares = _mm512_fmadd_ps(f0, f0, squares);
		squares = _mm512_fmadd_ps(f1, f1, squares);
	}
	return squares;
}

static uint32_t keys(uint16_t *to, const uint16_t *from, int64_t n, int64_t dim) {
	__m512i most = _mm512_setzero_si512();
	for (int64_t e = 0; e < RM_APPROX_ENTRIES; e += 16) {
		__m512 squares[16];
		for (int64_t i = 0; i < 16; i++) {
			if (e + i < n) {
				squares[i] = split(to + (e + i) * 32, from + (e + i) * dim, dim);
				continue;
			}
			squares[i] = _mm512_setzero_ps();
			for (int64_t d = 0; d < dim / 32 * 2; d++) {
				_mm512_store_si512(to + (e + i) * 32 + d * 32 * 32, _mm512_setzero_si512());
			}
		}
		// Compared as integers: a NaN is above all others.
		__m512i bits = _mm512_and_si512(_mm512_castps_si512(sums16(squares)), _mm512_set1_epi32(0x7fffffff));
		most = _mm512_max_epu32(most, bits);
	}
	return _mm512_reduce_max_epu32(most);
}

// The products of 32 entries with 32 heads are four tiles [16][16]: entries 0
// to 15 with the first and the last 16 heads, then entries 16 to 31.
#define TILES 1024

// chunk accumulates the products over 32 columns. k and q are the high and low
// parts.
INLINE void chunk(const uint16_t *k, const uint16_t *q) {
	const uint16_t *klow = k + 32 * 32, *qlow = q + 2 * 16 * 32;
	TILE_LOAD(4, k, 64);
	TILE_LOAD(6, qlow, 64);
	TILE_DOT_BF(0, 4, 6);
	TILE_LOAD(7, qlow + 512, 64);
	TILE_DOT_BF(1, 4, 7);
	TILE_LOAD(5, k + 512, 64);
	TILE_DOT_BF(2, 5, 6);
	TILE_DOT_BF(3, 5, 7);
	TILE_LOAD(6, q, 64);
	TILE_DOT_BF(0, 4, 6);
	TILE_LOAD(7, q + 512, 64);
	TILE_DOT_BF(1, 4, 7);
	TILE_LOAD(4, klow, 64);
	TILE_DOT_BF(2, 5, 6);
	TILE_DOT_BF(3, 5, 7);
	TILE_LOAD(5, klow + 512, 64);
	TILE_DOT_BF(0, 4, 6);
	TILE_DOT_BF(1, 4, 7);
	TILE_DOT_BF(2, 5, 6);
	TILE_DOT_BF(3, 5, 7);
}

// weigh adds the weighted contributions of the heads to the sums of entries
// [from, to).
INLINE void weigh(__m512 *sums, const float *tiles, const float *weight, int64_t from, int64_t to) {
	__m512 zero = _mm512_setzero_ps(), w0 = _mm512_loadu_ps(weight), w1 = _mm512_loadu_ps(weight + 16);
	for (int64_t e = from; e < to; e++) {
		const float *t = tiles + e / 16 * 512 + e % 16 * 16;
		__m512 s = _mm512_fmadd_ps(w0, _mm512_max_ps(zero, _mm512_load_ps(t)), sums[e]);
		sums[e] = _mm512_fmadd_ps(w1, _mm512_max_ps(zero, _mm512_load_ps(t + 256)), s);
	}
}

// finish writes the scores of n entries.
INLINE void finish(float *score, const __m512 sums[RM_APPROX_ENTRIES], int64_t n) {
	_Alignas(64) float out[RM_APPROX_ENTRIES];
	_mm512_store_ps(out, sums16(sums));
	_mm512_store_ps(out + 16, sums16(sums + 16));
	memcpy(score, out, (size_t)(n < RM_APPROX_ENTRIES ? n : RM_APPROX_ENTRIES) * sizeof(float));
}

static void scores(float *score, const uint16_t *k, int64_t n, const uint16_t *query, const float *weight, int64_t heads,
                   int64_t dim) {
	_Alignas(64) float tiles[2][TILES];
	__m512 sums[RM_APPROX_ENTRIES];
	int64_t groups = rm_approx_heads(heads) / RM_APPROX_HEADS, chunks = dim / 32;
	int64_t steps = (n + RM_APPROX_ENTRIES - 1) / RM_APPROX_ENTRIES * groups;
	tiles_on(2);
	// A step is 32 heads of a block. While the tile unit works on one step, the
	// products of the previous one are weighted and summed.
	int64_t group = 0, before = groups - 1, e = -RM_APPROX_ENTRIES;
	for (int64_t s = 0; s <= steps; s++) {
		const uint16_t *q = query + group * rm_approx_block(dim);
		const float *w = weight + before * RM_APPROX_HEADS, *done = tiles[(s + 1) % 2];
		if (s < steps) {
			TILE_ZERO(0);
			TILE_ZERO(1);
			TILE_ZERO(2);
			TILE_ZERO(3);
		}
		if (before == 0) {
			for (int i = 0; i < RM_APPROX_ENTRIES; i++) sums[i] = _mm512_setzero_ps();
		}
		for (int64_t c = 0; c < chunks; c++) {
			if (s < steps) chunk(k + c * 2048, q + c * 2048);
			if (s > 0) weigh(sums, done, w, 32 * c / chunks, 32 * (c + 1) / chunks);
		}
		if (s < steps) {
			float *t = tiles[s % 2];
			TILE_STORE(0, t);
			TILE_STORE(1, t + 256);
			TILE_STORE(2, t + 512);
			TILE_STORE(3, t + 768);
		}
		if (before == groups - 1) {
			if (s > 0) finish(score + e, sums, n - e);
			e += RM_APPROX_ENTRIES;
		}
		before = group;
		if (++group == groups) group = 0, k += rm_approx_block(dim);
	}
	tiles_off();
}

// rounded is x rounded to the nearest bfloat16, as a float.
INLINE __m512 rounded(__m512 f) {
	__m512i u = _mm512_castps_si512(f), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
	return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000)));
}

// squared adds up the squares of 16 floats in double, which they can neither
// overflow nor underflow.
INLINE __m512d squared(__m512 f, __m512d sum) {
	__m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(f)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(f, 1));
	return _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, sum));
}

static double query(uint16_t *to, float *padded, const float *q, const float *weight, float scale, int64_t heads, int64_t dim) {
	const int64_t tile = 16 * 16 * 2;
	double reach = 0;
	for (int64_t first = 0; first < rm_approx_heads(heads); first += 16) {
		uint16_t *out = to + first / 32 * rm_approx_block(dim) + first % 32 / 16 * tile;
		__m512d sums[16];
		for (int64_t h = 0; h < 16; h++) sums[h] = _mm512_setzero_pd();
		for (int64_t d = 0; d < dim; d += 32, out += 4 * tile) {
			__m512i high[16], low[16];
			for (int64_t h = 0; h < 16; h++) {
				__m512 f0 = _mm512_setzero_ps(), f1 = f0;
				if (first + h < heads) {
					f0 = _mm512_loadu_ps(q + (first + h) * dim + d);
					f1 = _mm512_loadu_ps(q + (first + h) * dim + d + 16);
				}
				sums[h] = squared(f1, squared(f0, sums[h]));
				__m512 h0 = rounded(f0), h1 = rounded(f1);
				high[h] = pairs(h0, h1);
				low[h] = pairs(rounded(_mm512_sub_ps(f0, h0)), rounded(_mm512_sub_ps(f1, h1)));
			}
			__m512i column[16];
			transpose16v(high, column);
			for (int64_t i = 0; i < 16; i++) _mm512_store_si512(out + 32 * i, column[i]);
			transpose16v(low, column);
			for (int64_t i = 0; i < 16; i++) _mm512_store_si512(out + 2 * tile + 32 * i, column[i]);
		}
		for (int64_t h = first; h < first + 16; h++) {
			padded[h] = h < heads ? weight[h] * scale : 0;
			if (h < heads) reach += rm_approx_reach(padded[h], _mm512_reduce_add_pd(sums[h - first]));
		}
	}
	return reach;
}

RM_END_TARGET

const rm_approx rm_approx_amx = {keys, query, scores};
#endif
