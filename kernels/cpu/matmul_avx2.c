// Matrix product kernels for AVX2 with FMA and F16C.
#include "rm_matmul.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX2

static inline __attribute__((always_inline)) __m256i dot_u8(__m256i u, __m256i a) {
	// At most 2*128*127 in the int16 sums: no saturation.
	return _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), _mm256_set1_epi16(1));
}

#define RM_MATH_256
#include "rm_math.h"
#include "rm_vec256.h"

EACH_TYPE(DEFINE_ROWS)

// dense_block is nr rows times nt tokens, 16 lanes each in two vectors.
INLINE void dense_block(const uint8_t *const *rows, int nr, int64_t cols, const float *const *x, int nt,
                        float *const *out, int64_t off) {
	__m256 a[2][2][2];
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) a[r][t][0] = a[r][t][1] = _mm256_setzero_ps();
	}
	int64_t i = 0;
	for (; i + 16 <= cols; i += 16) {
		for (int r = 0; r < nr; r++) {
			__m256 w0 = _mm256_loadu_ps((const float *)(const void *)(rows[r] + 4 * i));
			__m256 w1 = _mm256_loadu_ps((const float *)(const void *)(rows[r] + 4 * i + 32));
			for (int t = 0; t < nt; t++) {
				a[r][t][0] = _mm256_fmadd_ps(w0, _mm256_loadu_ps(x[t] + i), a[r][t][0]);
				a[r][t][1] = _mm256_fmadd_ps(w1, _mm256_loadu_ps(x[t] + i + 8), a[r][t][1]);
			}
		}
	}
	if (i < cols) {
		size_t left = (size_t)(cols - i) * 4;
		for (int r = 0; r < nr; r++) {
			float w[16] = {0};
			memcpy(w, rows[r] + 4 * i, left);
			for (int t = 0; t < nt; t++) {
				float v[16] = {0};
				memcpy(v, x[t] + i, left);
				a[r][t][0] = _mm256_fmadd_ps(_mm256_loadu_ps(w), _mm256_loadu_ps(v), a[r][t][0]);
				a[r][t][1] = _mm256_fmadd_ps(_mm256_loadu_ps(w + 8), _mm256_loadu_ps(v + 8), a[r][t][1]);
			}
		}
	}
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) out[t][off + r] = sum8(_mm256_add_ps(a[r][t][0], a[r][t][1]));
	}
}

static void dense(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                  float *const *out, int64_t off) {
	for (int64_t r = 0; r < nr; r += 2) {
		int64_t t = 0;
		if (r + 2 <= nr) {
			for (; t + 2 <= nx; t += 2) dense_block(rows + r, 2, cols, x + t, 2, out + t, off + r);
			for (; t < nx; t++) dense_block(rows + r, 2, cols, x + t, 1, out + t, off + r);
		} else {
			for (; t < nx; t++) dense_block(rows + r, 1, cols, x + t, 1, out + t, off + r);
		}
	}
}

RM_END_TARGET

#define ENTRY(name, type, kind, min, bytes) [type] = rows_##name,
const rm_kernels rm_kernels_avx2 = {quantise, widen, narrow, glu, dense, {EACH_TYPE(ENTRY)}, NULL, NULL, 0};
#endif
