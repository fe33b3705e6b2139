// GEMV kernels for a few tokens at the AVX-512 level, by type.
#include "matmul.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX512

#include "gemv_avx512.inc.h"
#include "gemv_avx512_types.inc.h"

// BY_TOKENS calls f with the number of tokens of the tile t as a constant.
#define BY_TOKENS(f, ...) \
	switch (t->nx) { \
	case 1: f(__VA_ARGS__, t, 1); break; \
	case 2: f(__VA_ARGS__, t, 2); break; \
	case 3: f(__VA_ARGS__, t, 3); break; \
	default: f(__VA_ARGS__, t, 4); \
	}

// Rows of most types take one or two tokens: with more, gemv_lanes_avx512.c is faster.
#define DEFINE_ROW(name, type, ...) \
	static void row_##name(const rm_tile *t) { \
		switch (2 * (t->nx > 1) + t->upper_only) { \
		case 0: run_rows(__VA_ARGS__, t, 1); break; \
		case 1: run_rows(with(__VA_ARGS__, UPPER), t, 1); break; \
		case 2: run_rows(__VA_ARGS__, t, 2); break; \
		default: run_rows(with(__VA_ARGS__, UPPER), t, 2); \
		} \
	}
EACH_ROW(DEFINE_ROW)
// Of these kernels that of Q8_0 is the one that is faster than memory.
DEFINE_ROW(q8_0_far, RM_Q8_0, with(KIND_Q8_0, FAR))

// load_nvfp4 reads a block of NVFP4: 16 weights have a scale and eight bytes, the first eight in
// their low nibbles.
INLINE void load_nvfp4(const uint8_t *block, __m512 w[4]) {
	__m256i q = load256(block + 4), nibble = _mm256_set1_epi8(15);
	__m256i low = _mm256_and_si256(q, nibble), high = _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble);
	__m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
	__m128i v[4] = {_mm256_castsi256_si128(even), _mm256_castsi256_si128(odd), _mm256_extracti128_si256(even, 1), _mm256_extracti128_si256(odd, 1)};
	__m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); // rm_mxfp4_values
	for (int k = 0; k < 4; k++) {
		__m512 d = _mm512_set1_ps(rm_nvfp4_scales[block[k]]);
		w[k] = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(v[k]), table), d);
	}
}

// load_dense reads 16 weights of F32, F16 or BF16, type constant.
INLINE __m512 load_dense(const uint8_t *row, int64_t i, int32_t type, __mmask16 mask) {
	if (type == RM_F32) return _mm512_maskz_loadu_ps(mask, row + 4 * i);
	__m256i v = mask == 0xffff ? load256(row + 2 * i) : _mm256_maskz_loadu_epi16(mask, row + 2 * i);
	if (type == RM_F16) return _mm512_cvtph_ps(v);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

// dense4 is four rows of float32, 16-bit or NVFP4 weights times nt tokens, as
// rm_dense_fn. With one token the processor's own prefetching keeps up.
INLINE void dense4(int32_t type, const uint8_t *const row[4], const quads *next, int64_t cols, const void *const *x, int nt,
                   float out[4][4]) {
	__m512 acc[4][4];
	for (int r = 0; r < 4; r++) {
		for (int n = 0; n < nt; n++) acc[r][n] = _mm512_setzero_ps();
	}
	int64_t i = 0, step = type == RM_NVFP4 ? 64 : 16, line = type == RM_F32 ? 16 : 32; // weights in 64 bytes
	for (; i + step <= cols; i += step) {
		if (nt > 1 && i % line == 0) {
			int64_t at = rm_dense_bytes(type, i);
			uintptr_t ahead = quads_ahead(next, at) + (uintptr_t)at;
			for (int r = 0; r < 4; r++) rm_prefetch((uintptr_t)row[r] + ahead, 64, 1);
		}
		for (int r = 0; r < 4; r++) {
			__m512 w[4];
			if (type == RM_NVFP4) {
				load_nvfp4(row[r] + rm_dense_bytes(type, i), w);
			} else {
				w[0] = load_dense(row[r], i, type, 0xffff);
			}
			for (int k = 0; k < step / 16; k++) {
				for (int n = 0; n < nt; n++) {
					acc[r][n] = _mm512_fmadd_ps(w[k], _mm512_loadu_ps((const float *)x[n] + i + 16 * k), acc[r][n]);
				}
			}
		}
	}
	if (i < cols) {
		__mmask16 mask = (__mmask16)((1u << (cols - i)) - 1);
		for (int r = 0; r < 4; r++) {
			__m512 w = load_dense(row[r], i, type, mask);
			for (int n = 0; n < nt; n++) {
				acc[r][n] = _mm512_fmadd_ps(w, _mm512_maskz_loadu_ps(mask, (const float *)x[n] + i), acc[r][n]);
			}
		}
	}
	for (int r = 0; r < 4; r++) {
		for (int n = 0; n < nt; n++) {
			__m512 v = acc[r][n];
			out[r][n] = sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
		}
	}
}

INLINE void run_dense(int32_t type, const rm_tile *t, int nt) {
	quads next = quads_of(t, rm_dense_bytes(type, t->cols));
	for (int64_t r = 0; r <= t->nrows / 4; r++, next.at += t->row_bytes) {
		const uint8_t *rows[4];
		int64_t first, step = four(t, r, rows, &first);
		if (step == 0) break;
		float out[4][4];
		dense4(type, rows, &next, t->cols, t->x, nt, out);
		give(t, first, step, nt, out);
	}
}

static void row_f32(const rm_tile *t) { BY_TOKENS(run_dense, RM_F32); }
static void row_f16(const rm_tile *t) { BY_TOKENS(run_dense, RM_F16); }
static void row_bf16(const rm_tile *t) { BY_TOKENS(run_dense, RM_BF16); }
static void row_nvfp4(const rm_tile *t) { BY_TOKENS(run_dense, RM_NVFP4); }

RM_END_TARGET

// IQ2_XXS uses instructions that the first processors of this level lack.
RM_BEGIN_AVX512_VBMI

#include "gemv_avx512_iq2_xxs.inc.h"

#define KIND_IQ2_XXS (row_kind){NULL, unpack_iq2_xxs, scales_iq2_xxs, NULL, OFFSET | WHOLE, 66, NATURAL, 0, 0, 0}

static void row_iq2_xxs(const rm_tile *t) {
	if (t->upper_only) {
		BY_TOKENS(run_rows, with(KIND_IQ2_XXS, UPPER));
	} else {
		BY_TOKENS(run_rows, KIND_IQ2_XXS);
	}
}

RM_END_TARGET

// rows_of is the kernel of a type, at_once the tokens it takes at once.
static rm_tile_fn rows_of(int32_t type, int64_t cols, int *at_once) {
	*at_once = 4;
	if (type == RM_F32) return row_f32;
	if (type == RM_F16) return row_f16;
	if (type == RM_BF16) return row_bf16;
	if (type == RM_NVFP4) return row_nvfp4;
	if (cols % 256 != 0) return NULL;
	if (type == RM_IQ2_XXS) return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni") ? row_iq2_xxs : NULL;
	*at_once = 2;
	if (type == RM_Q8_0 && rm_prefetch_far()) return row_q8_0_far;
	switch (type) {
#define CASE(name, type, ...) \
	case type: return row_##name;
		EACH_ROW(CASE)
	}
	return NULL;
}

// DENSE_TOKENS: with more tokens, widening the weights to float32 once is faster.
#define DENSE_TOKENS 8

int rm_row512(const rm_tile *t) {
	int at_once;
	rm_tile_fn rows = rows_of(t->type, t->cols, &at_once);
	if (!rows || (t->nx > DENSE_TOKENS && !rm_uses_act(t->type))) return 0;
	for (int64_t n = 0; n < t->nx; n += at_once) {
		rm_tile part = *t;
		part.x += n;
		part.out += n;
		part.nx = t->nx - n < at_once ? t->nx - n : at_once;
		rows(&part);
	}
	return 1;
}
#endif
