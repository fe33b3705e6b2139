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

typedef __m256i pint;
typedef __m256 pfloat;
INLINE pint p_zero_int(void) { return _mm256_setzero_si256(); }
INLINE pint p_load_int(const void *p) { return load256(p); }
INLINE pint p_pair(const void *p) { return _mm256_set1_epi32((int)rm_load32(p)); }

// p_dot keeps the order of the additions: gcc makes a tree of them, for which it stores every
// product in memory.
INLINE pint p_dot(pint t, pint w, pint v) {
	t = _mm256_add_epi32(t, _mm256_madd_epi16(w, v));
	__asm__("" : "+x"(t));
	return t;
}

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

// packing has 32 bytes of padding in each row against cache set conflicts.
typedef struct {
	_Alignas(64) uint8_t q[PANEL_ROWS][256 + 32];
	uint32_t k[16][PANEL_ROWS]; // for each 16 columns the integer scale, twice
} packing;

INLINE void p_keep(packing *p, int64_t r, const super *u, int kind) {
	for (int g = 0; g < 8; g++) {
		_mm256_storeu_si256((__m256i *)(void *)(p->q[r] + 32 * g), u->q[g]);
		if (kind != KIND_UK && kind != KIND_SK) continue;
		p->k[2 * g][r] = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(u->k[g]));
		p->k[2 * g + 1][r] = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(u->k[g], 1));
	}
}

// p_group transposes pairs of bytes before they become pairs of int16. One half of a vector
// has the first four rows, the other the last four.
INLINE void p_group(const packing *p, int g, int kind, int16_t *dst) {
	for (int h = 0; h < 2; h++, dst += 8 * 2 * PANEL_ROWS) {
		__m256i r[4], a[4], b[4];
		for (int i = 0; i < 4; i++) {
			int at = 32 * g + 16 * h;
			r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p->q[i] + at)), load128(p->q[i + 4] + at), 1);
		}
		for (int i = 0; i < 4; i += 2) {
			a[i] = _mm256_unpacklo_epi16(r[i], r[i + 1]);
			a[i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 1]);
		}
		for (int i = 0; i < 2; i++) {
			b[2 * i] = _mm256_unpacklo_epi32(a[i], a[i + 2]);
			b[2 * i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 2]);
		}
		__m256i zero = _mm256_setzero_si256(), k = zero;
		if (kind == KIND_UK || kind == KIND_SK) k = load256(p->k[2 * g + h]);
		for (int c = 0; c < 8; c++) {
			__m256i v = b[c / 2];
			if (kind == KIND_U || kind == KIND_UK) {
				v = c % 2 ? _mm256_unpackhi_epi8(v, zero) : _mm256_unpacklo_epi8(v, zero);
			} else {
				v = _mm256_srai_epi16(c % 2 ? _mm256_unpackhi_epi8(zero, v) : _mm256_unpacklo_epi8(zero, v), 8);
			}
			if (kind == KIND_UK || kind == KIND_SK) v = _mm256_mullo_epi16(v, k);
			_mm256_storeu_si256((__m256i *)(void *)(dst + 2 * PANEL_ROWS * c), v);
		}
	}
}

// p_float_columns transposes PANEL_ROWS rows of 8 floats; the columns are
// written `step` floats apart.
INLINE void p_float_columns(float (*src)[8], float *dst, int64_t step) {
	__m256 r[8];
	for (int i = 0; i < 8; i++) r[i] = _mm256_load_ps(src[i]);
	transpose8(r, dst, step);
}

#define PANELS_OF_BYTES 0
#include "matmul_panel.inc.h"

// dense_columns: see matmul_dense.inc.h. The first eight lanes come first, so that all sums stay
// in registers.
INLINE void dense_columns(const uint8_t *const *rows, int nr, int64_t from, int64_t to, const float *const *x,
                          int64_t first, int nt, float (*sums)[RM_DENSE_TOKENS][16]) {
	for (int64_t lane = 0; lane < 16; lane += 8) {
		__m256 a[4][3];
		for (int r = 0; r < nr; r++) {
			for (int t = 0; t < nt; t++) a[r][t] = from == 0 ? _mm256_setzero_ps() : _mm256_load_ps(sums[r][first + t] + lane);
		}
		int64_t i = from + lane;
		for (; i - lane + 16 <= to; i += 16) {
			__m256 v[3];
			for (int t = 0; t < nt; t++) v[t] = _mm256_loadu_ps(x[first + t] + i);
			for (int r = 0; r < nr; r++) {
				__m256 w = _mm256_loadu_ps((const float *)(const void *)(rows[r] + 4 * i));
				__asm__("" : "+x"(w)); // gcc would load it again for each token
				for (int t = 0; t < nt; t++) a[r][t] = _mm256_fmadd_ps(w, v[t], a[r][t]);
			}
		}
		if (i < to) {
			size_t left = to - i < 8 ? (size_t)(to - i) * 4 : 32;
			for (int t = 0; t < nt; t++) {
				float v[8] = {0};
				memcpy(v, x[first + t] + i, left);
				for (int r = 0; r < nr; r++) {
					float w[8] = {0};
					memcpy(w, rows[r] + 4 * i, left);
					a[r][t] = _mm256_fmadd_ps(_mm256_loadu_ps(w), _mm256_loadu_ps(v), a[r][t]);
				}
			}
		}
		for (int r = 0; r < nr; r++) {
			for (int t = 0; t < nt; t++) _mm256_store_ps(sums[r][first + t] + lane, a[r][t]);
		}
	}
}

INLINE float dense_sum(const float *lanes) { return sum8(_mm256_add_ps(_mm256_load_ps(lanes), _mm256_load_ps(lanes + 8))); }

#define DENSE_AT_ONCE 3
#include "matmul_dense.inc.h"

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
