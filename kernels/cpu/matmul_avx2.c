// GEMM and GEMV kernels for AVX2 with FMA and F16C.
#include "matmul.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX2

static inline __attribute__((always_inline)) __m256i dot_u8(__m256i u, __m256i a) {
	// The int16 sums are at most 2*128*127: no saturation.
	return _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), _mm256_set1_epi16(1));
}

#define RM_MATH_256
#include "exp.h"
#include "matmul_vec256.inc.h"

EACH_TYPE(DEFINE_ROWS)

#define PANEL_ROWS 8
#define PANELS_AT_ONCE 1
typedef __m256i pint;
typedef __m256 pfloat;
INLINE pint p_zero_int(void) { return _mm256_setzero_si256(); }
INLINE pint p_load_int(const int16_t *p) { return load256(p); }
INLINE pint p_pair(const int16_t *p) { return _mm256_set1_epi32((int)rm_load32(p)); }
INLINE pint p_dot(pint t, pint w, pint v) { return _mm256_add_epi32(t, _mm256_madd_epi16(w, v)); }
INLINE pfloat p_float(pint t) { return _mm256_cvtepi32_ps(t); }
INLINE pfloat p_zero(void) { return _mm256_setzero_ps(); }
INLINE pfloat p_load(const float *p) { return _mm256_load_ps(p); }
INLINE pfloat p_set(float v) { return _mm256_set1_ps(v); }
INLINE pfloat p_add(pfloat a, pfloat b) { return _mm256_add_ps(a, b); }
INLINE pfloat p_mul(pfloat a, pfloat b) { return _mm256_mul_ps(a, b); }
INLINE pfloat p_fma(pfloat a, pfloat b, pfloat c) { return _mm256_fmadd_ps(a, b, c); }

INLINE void p_store(float *out, int64_t n, pfloat v) {
	if (n == 8) {
		_mm256_storeu_ps(out, v);
	} else {
		float all[8];
		_mm256_storeu_ps(all, v);
		memcpy(out, all, (size_t)n * sizeof(float));
	}
}

// transpose8 transposes 8 rows of 8 dwords; the columns are written `step`
// floats apart.
INLINE void transpose8(const __m256 r[8], float *dst, int64_t step) {
	__m256 a[8], b[8];
	for (int i = 0; i < 8; i += 2) {
		a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
		b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
		b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
		b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
	}
	for (int c = 0; c < 4; c++) {
		_mm256_storeu_ps(dst + step * c, _mm256_permute2f128_ps(b[c], b[4 + c], 0x20));
		_mm256_storeu_ps(dst + step * (4 + c), _mm256_permute2f128_ps(b[c], b[4 + c], 0x31));
	}
}

// p_columns transposes PANEL_ROWS rows of 16 dwords, `stride` bytes apart.
INLINE void p_columns(const uint8_t *src, size_t stride, int16_t *dst) {
	for (size_t h = 0; h < 2; h++) {
		__m256 r[8];
		for (size_t i = 0; i < 8; i++) r[i] = _mm256_castsi256_ps(load256(src + stride * i + 32 * h));
		transpose8(r, (float *)(void *)(dst + 128 * h), 8);
	}
}

// p_float_columns transposes PANEL_ROWS rows of 8 floats; the columns are
// written `step` floats apart.
INLINE void p_float_columns(float (*src)[8], float *dst, int64_t step) {
	__m256 r[8];
	for (int i = 0; i < 8; i++) r[i] = _mm256_load_ps(src[i]);
	transpose8(r, dst, step);
}

#include "matmul_panel.inc.h"

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

#define ENTRY(name, type, kind, min, bytes) [type] = tile_##name,
const rm_kernels rm_kernels_avx2 = {
    .quantise = quantise,
    .widen = widen,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = {EACH_TYPE(ENTRY)},
    .row = rm_row256,
    .gather = gather_tokens,
    .gather_from = 4,
    .limits = rm_limits_avx2,
};
#endif
