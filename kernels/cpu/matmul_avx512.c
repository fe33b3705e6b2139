// Matrix product kernels for AVX-512 with VNNI: single tokens go by rows on
// 256-bit vectors, several tokens through panels of 16 rows. With AMX, many
// tokens go through tiles.
#include "rm_matmul.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX512

static inline __attribute__((always_inline)) __m256i dot_u8(__m256i u, __m256i a) {
	return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, a);
}

#define RM_MATH_256
#include "rm_math.h"
#include "rm_vec256.h"
#include "rm_panel512.h"
#include "rm_slab.h"
#include "rm_amx.h"

EACH_TYPE(DEFINE_ROWS)

#define MODE_OF(type, kind, min) \
	(type == RM_Q6_K                       ? MODE_K \
	 : kind == KIND_S || kind == KIND_SK   ? MODE_Z \
	 : min == MIN_16                       ? MODE_MM \
	 : min == MIN_32                       ? MODE_M \
	                                       : MODE_U)

#define DEFINE_TILE(name, type, kind, min, bytes) \
	static void pack_##name(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const panel *p) { \
		pack(unpack_##name, type == RM_Q6_K ? PANEL_K : kind, min, bytes, w, row_bytes, nrows, cols, p); \
	} \
	static void tile_##name(const rm_tile *t) { \
		if (t->nx < 2) { \
			rows_##name(t); \
		} else { \
			panels(pack_##name, dots_of[MODE_OF(type, kind, min)], t); \
		} \
	}
EACH_TYPE(DEFINE_TILE)

#define PLANES_OF(type) (type == RM_Q6_K ? 2 : 1)

#define DEFINE_SLABS(name, type, kind, min, bytes) \
	static void pack_slab_##name(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const slab *p) { \
		pack_slab(unpack_##name, kind, min, PLANES_OF(type), bytes, w, row_bytes, nrows, cols, p); \
	} \
	static void slabs_##name(const rm_tile *t) { \
		if (!t->batches) { \
			tile_##name(t); \
		} else { \
			slabs(pack_slab_##name, PLANES_OF(type), slab_dots_of[type == RM_Q6_K ? 3 : min], t); \
		} \
	}
EACH_TYPE(DEFINE_SLABS)

// sum16 is rm_sum16.
INLINE float sum16(__m512 v) { return sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))); }

// dense_block is nr rows times nt tokens.
INLINE void dense_block(const uint8_t *const *rows, int nr, int64_t cols, const float *const *x, int nt,
                        float *const *out, int64_t off) {
	__m512 a[4][4];
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) a[r][t] = _mm512_setzero_ps();
	}
	int64_t i = 0;
	for (; i + 16 <= cols; i += 16) {
		__m512 w[4];
		for (int r = 0; r < nr; r++) w[r] = _mm512_loadu_ps(rows[r] + 4 * i);
		for (int t = 0; t < nt; t++) {
			__m512 v = _mm512_loadu_ps(x[t] + i);
			for (int r = 0; r < nr; r++) a[r][t] = _mm512_fmadd_ps(w[r], v, a[r][t]);
		}
	}
	if (i < cols) {
		__mmask16 mask = (__mmask16)((1u << (cols - i)) - 1);
		for (int t = 0; t < nt; t++) {
			__m512 v = _mm512_maskz_loadu_ps(mask, x[t] + i);
			for (int r = 0; r < nr; r++) {
				a[r][t] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, rows[r] + 4 * i), v, a[r][t]);
			}
		}
	}
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) out[t][off + r] = sum16(a[r][t]);
	}
}

static void dense(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                  float *const *out, int64_t off) {
	if (nr == 4) {
		int64_t t = 0;
		for (; t + 4 <= nx; t += 4) dense_block(rows, 4, cols, x + t, 4, out + t, off);
		for (; t < nx; t++) dense_block(rows, 4, cols, x + t, 1, out + t, off);
		return;
	}
	for (int64_t r = 0; r < nr; r++) {
		int64_t t = 0;
		for (; t + 4 <= nx; t += 4) dense_block(rows + r, 1, cols, x + t, 4, out + t, off + r);
		for (; t < nx; t++) dense_block(rows + r, 1, cols, x + t, 1, out + t, off + r);
	}
}

RM_END_TARGET

#define ENTRY(name, type, kind, min, bytes) [type] = tile_##name,
const rm_kernels rm_kernels_avx512 = {quantise, widen, narrow, glu, dense, {EACH_TYPE(ENTRY)}, rm_row512, NULL, 0};

#define SLABS_ENTRY(name, type, kind, min, bytes) [type] = slabs_##name,
const rm_kernels rm_kernels_amx = {quantise, widen, narrow, glu, dense, {EACH_TYPE(SLABS_ENTRY)}, rm_row512, gather, 2};
#endif
