// GEMV kernels for a few tokens at the AVX2 level, by type.
#include "matmul.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX2

#include "gemv_avx2.inc.h"
#include "gemv_avx2_types.inc.h"

// AT_ONCE is the number of tokens that rows are multiplied by while they are unpacked.
#define AT_ONCE 2

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

// load_dense reads 8 weights of F32, F16 or BF16, type constant.
INLINE __m256 load_dense(const uint8_t *row, int64_t i, int32_t type) {
	if (type == RM_F32) return _mm256_loadu_ps((const float *)(const void *)(row + 4 * i));
	__m128i v = load128(row + 2 * i);
	if (type == RM_F16) return _mm256_cvtph_ps(v);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

// dense_rows is nr rows, `stride` bytes apart, times nt tokens, as rm_dense_fn. With one
// token the processor's own prefetching keeps up.
INLINE void dense_rows(int32_t type, const uint8_t *w, int64_t stride, int nr, const rm_ahead *next, int64_t cols, const void *const *x, int nt,
                       float *const *out, int64_t off) {
	__m256 acc[2][2][2];
	for (int r = 0; r < nr; r++) {
		for (int n = 0; n < nt; n++) acc[r][n][0] = acc[r][n][1] = _mm256_setzero_ps();
	}
	int64_t step = type == RM_NVFP4 ? 64 : 16, line = type == RM_F32 ? 16 : 32; // weights in 64 bytes
	for (int64_t i = 0; i < cols; i += step) {
		for (int r = 0; r < nr; r++) {
			const uint8_t *row = w + r * stride;
			if (nt > 1 && i % line == 0) {
				int64_t at = rm_dense_bytes(type, i);
				rm_prefetch((uintptr_t)row + (uintptr_t)at + rm_ahead_from(next, at), 64, 1);
			}
			__m256 v[8];
			if (type == RM_NVFP4) {
				load_nvfp4(row + rm_dense_bytes(type, i), v);
			} else {
				for (int k = 0; k < 2; k++) v[k] = load_dense(row, i + 8 * k, type);
			}
			for (int n = 0; n < nt; n++) {
				for (int k = 0; k < step / 8; k++) {
					acc[r][n][k % 2] = _mm256_fmadd_ps(v[k], _mm256_loadu_ps((const float *)x[n] + i + 8 * k), acc[r][n][k % 2]);
				}
			}
		}
	}
	for (int r = 0; r < nr; r++) {
		for (int n = 0; n < nt; n++) out[n][off + r] = sum8(_mm256_add_ps(acc[r][n][0], acc[r][n][1]));
	}
}

INLINE void run_dense(int32_t type, const rm_tile *t, int nt) {
	rm_ahead next = rm_ahead_of(rm_dense_bytes(type, t->cols), t->row_bytes, PREFETCH);
	int64_t r = 0;
	for (; r + 2 <= t->nrows; r += 2) dense_rows(type, t->w + r * t->row_bytes, t->row_bytes, 2, &next, t->cols, t->x, nt, t->out, t->off + r);
	if (r < t->nrows) dense_rows(type, t->w + r * t->row_bytes, t->row_bytes, 1, &next, t->cols, t->x, nt, t->out, t->off + r);
}

#define DEFINE_DENSE(name, type) \
	static void row_##name(const rm_tile *t) { \
		if (t->nx > 1) { \
			run_dense(type, t, 2); \
		} else { \
			run_dense(type, t, 1); \
		} \
	}
DEFINE_DENSE(f32, RM_F32)
DEFINE_DENSE(f16, RM_F16)
DEFINE_DENSE(bf16, RM_BF16)
DEFINE_DENSE(nvfp4, RM_NVFP4)

RM_END_TARGET

static rm_tile_fn rows_of(int32_t type, int64_t cols) {
	if (cols % 16 != 0) return NULL;
	if (type == RM_F32) return row_f32;
	if (type == RM_F16) return row_f16;
	if (type == RM_BF16) return row_bf16;
	if (type == RM_NVFP4) return row_nvfp4;
	if (cols % 256 != 0) return NULL;
	if (type == RM_Q8_0 && rm_prefetch_far()) return row_q8_0_far;
	switch (type) {
#define CASE(name, type, ...) \
	case type: return row_##name;
		EACH_ROW(CASE)
	}
	return NULL;
}

// DENSE_TOKENS: with more tokens, widening the weights to float32 once is faster.
#define DENSE_TOKENS 4

int rm_row256(const rm_tile *t) {
	rm_tile_fn rows = rows_of(t->type, t->cols);
	if (!rows || (t->nx > DENSE_TOKENS && !rm_uses_act(t->type))) return 0;
	for (int64_t n = 0; n < t->nx; n += AT_ONCE) {
		rm_tile part = *t;
		part.x += n;
		part.out += n;
		part.nx = t->nx - n < AT_ONCE ? t->nx - n : AT_ONCE;
		rows(&part);
	}
	return 1;
}
#endif
