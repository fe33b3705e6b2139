// GEMM and GEMV kernels for AVX-512 with VNNI: single tokens are computed row
// by row on 256-bit vectors, several tokens through panels of 16 rows. With
// AMX, many tokens go through AMX tiles.
#include "matmul.h"
#include "amx_tiles.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX512

static inline __attribute__((always_inline)) __m256i dot_u8(__m256i u, __m256i a) {
	return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, a);
}

#define RM_MATH_256
#include "exp.h"
#include "matmul_vec256.inc.h"

EACH_TYPE(DEFINE_ROWS)

#define PANEL_ROWS 16

typedef __m512i pint;
typedef __m512 pfloat;
INLINE pint p_zero_int(void) { return _mm512_setzero_si512(); }
INLINE pint p_load_int(const void *p) { return _mm512_load_si512(p); }
INLINE pint p_pair(const void *p) { return _mm512_set1_epi32((int)rm_load32(p)); }
INLINE pint p_dot(pint t, pint w, pint v) { return _mm512_dpwssd_epi32(t, w, v); }
INLINE pint p_dot_bytes(pint t, pint w, pint v) { return _mm512_dpbusd_epi32(t, w, v); }
INLINE pint p_set_int(int32_t v) { return _mm512_set1_epi32(v); }
INLINE pint p_add_int(pint a, pint b) { return _mm512_add_epi32(a, b); }
INLINE pint p_mul_int(pint a, pint b) { return _mm512_mullo_epi32(a, b); }
INLINE pint p_times_128(pint v) { return _mm512_slli_epi32(v, 7); }
INLINE pfloat p_float(pint t) { return _mm512_cvtepi32_ps(t); }
INLINE pfloat p_zero(void) { return _mm512_setzero_ps(); }
INLINE pfloat p_load(const float *p) { return _mm512_load_ps(p); }
INLINE pfloat p_set(float v) { return _mm512_set1_ps(v); }
INLINE pfloat p_add(pfloat a, pfloat b) { return _mm512_add_ps(a, b); }
INLINE pfloat p_mul(pfloat a, pfloat b) { return _mm512_mul_ps(a, b); }
INLINE pfloat p_fma(pfloat a, pfloat b, pfloat c) { return _mm512_fmadd_ps(a, b, c); }
INLINE void p_store(float *out, int64_t n, pfloat v) { _mm512_mask_storeu_ps(out, (__mmask16)((1u << n) - 1), v); }

#include "transpose_avx512.inc.h"

// store16 stores q of group g as 32 int16.
INLINE void store16(const super *u, int kind, int g, int16_t *dst) {
	__m128i q0 = _mm256_castsi256_si128(u->q[g]), q1 = _mm256_extracti128_si256(u->q[g], 1);
	__m256i a = kind == KIND_U || kind == KIND_UK ? _mm256_cvtepu8_epi16(q0) : _mm256_cvtepi8_epi16(q0);
	__m256i b = kind == KIND_U || kind == KIND_UK ? _mm256_cvtepu8_epi16(q1) : _mm256_cvtepi8_epi16(q1);
	if (kind == KIND_UK || kind == KIND_SK) {
		a = _mm256_mullo_epi16(a, _mm256_broadcastsi128_si256(_mm256_castsi256_si128(u->k[g])));
		b = _mm256_mullo_epi16(b, _mm256_broadcastsi128_si256(_mm256_extracti128_si256(u->k[g], 1)));
	}
	_mm256_storeu_si256((__m256i *)(void *)dst, a);
	_mm256_storeu_si256((__m256i *)(void *)(dst + 16), b);
}

// packing has 64 bytes of padding in each row against cache set conflicts.
typedef struct {
	_Alignas(64) int16_t q[PANEL_ROWS][256 + 32];
} packing;

INLINE void p_keep(packing *p, int64_t r, const super *u, int kind) {
	for (int g = 0; g < 8; g++) store16(u, kind, g, p->q[r] + 32 * g);
}

// p_group transposes PANEL_ROWS rows of 16 dwords.
INLINE void p_group(const packing *p, int g, int kind, int16_t *dst) {
	(void)kind;
	__m512i v[16], c[16];
	for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(p->q[i] + 32 * g);
	transpose16v(v, c);
	for (int i = 0; i < 16; i++) _mm512_store_si512(dst + 32 * i, c[i]);
}

#define PANELS_OF_BYTES 1
#include "matmul_panel.inc.h"
#include "matmul_amx_slab.inc.h"
#include "matmul_amx.inc.h"

#define PLANES_OF(type) (type == RM_Q6_K ? 2 : 1)

#define DEFINE_SLABS(name, type, kind, min, bytes) \
	static void pack_slab_##name(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const slab *p) { \
		pack_slab(unpack_##name, kind, min, PLANES_OF(type), bytes, w, row_bytes, nrows, cols, p); \
	} \
	static void slabs_##name(const rm_tile *t) { \
		if (!t->batches) { \
			rows_##name(t); \
		} else { \
			slabs(pack_slab_##name, PLANES_OF(type), slab_dots_of[type == RM_Q6_K ? 3 : min], t); \
		} \
	}
EACH_TYPE(DEFINE_SLABS)

// sum16 is rm_sum16.
INLINE float sum16(__m512 v) { return sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))); }

// dense_columns: see matmul_dense.inc.h.
INLINE void dense_columns(const uint8_t *const *rows, int nr, int64_t from, int64_t to, const float *const *x,
                          int64_t first, int nt, float (*sums)[RM_DENSE_TOKENS][16]) {
	__m512 a[4][4];
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) a[r][t] = from == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums[r][first + t]);
	}
	int64_t i = from;
	for (; i + 16 <= to; i += 16) {
		__m512 w[4];
		for (int r = 0; r < nr; r++) w[r] = _mm512_loadu_ps(rows[r] + 4 * i);
		for (int t = 0; t < nt; t++) {
			__m512 v = _mm512_loadu_ps(x[first + t] + i);
			for (int r = 0; r < nr; r++) a[r][t] = _mm512_fmadd_ps(w[r], v, a[r][t]);
		}
	}
	if (i < to) {
		__mmask16 mask = (__mmask16)((1u << (to - i)) - 1);
		for (int t = 0; t < nt; t++) {
			__m512 v = _mm512_maskz_loadu_ps(mask, x[first + t] + i);
			for (int r = 0; r < nr; r++) {
				a[r][t] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, rows[r] + 4 * i), v, a[r][t]);
			}
		}
	}
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) _mm512_store_ps(sums[r][first + t], a[r][t]);
	}
}

INLINE float dense_sum(const float *lanes) { return sum16(_mm512_load_ps(lanes)); }

#define DENSE_AT_ONCE 4
#include "matmul_dense.inc.h"

RM_END_TARGET

#define ENTRY(name, type, kind, min, bytes) [type] = tile_##name,
const rm_kernels rm_kernels_avx512 = {
    .quantise = quantise,
    .widen = widen,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = {EACH_TYPE(ENTRY)},
    .row = rm_row512,
    .gather = gather_tokens,
    .gather_bytes = gather_bytes,
    .gather_from = 9,
    .lanes = rm_lanes_avx512,
    .lane_rows = 16,
    .limits = rm_limits_avx512,
};

#define SLABS_ENTRY(name, type, kind, min, bytes) [type] = slabs_##name,
const rm_kernels rm_kernels_amx = {
    .quantise = quantise,
    .widen = widen,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = {EACH_TYPE(SLABS_ENTRY)},
    .row = rm_row512,
    .gather = gather,
    .gather_from = 6,
    .few = rm_amx_few,
    .gather_few = rm_amx_gather_few,
    .few_from = 3,
    .lanes = rm_lanes_avx512,
    .lane_rows = 16,
    .limits = rm_limits_amx,
};
#endif
