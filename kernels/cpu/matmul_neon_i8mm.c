// GEMM tiles for aarch64 with byte matrix products (i8mm).
//
// smmla multiplies two rows of 8 bytes by two columns of 8 bytes. The rows are
// two weight rows, the columns the two bytes of a token's activations, so four
// smmla give the dot products of a group with both bytes, and no horizontal
// sums remain. Weight rows are unpacked once, in sets of 16, and then
// multiplied by all tokens, four rows by four tokens at a time.
//
// Groups are processed in twos, g and g+1 with g even; the values of two groups
// are stored by g mod 8 and then by block of 256 columns, so that float sums
// stay in registers. A float vector is row 0 of group g, row 1 of g, row 0 of
// g+1, row 1 of g+1.
#include "matmul.h"
#include "tables.h"

#if RM_NEON_I8MM
RM_BEGIN_NEON_I8MM

#include "matmul_neon.inc.h"

// pair is two weight rows unpacked.
typedef struct {
	int64_t supers;
	int8_t *w;         // [twos][2][4][16]: 8 bytes of row 0, 8 of row 1
	float *s, *m0, *m1; // [twos][4]
	int32_t *k;        // [twos][2][2][4], KIND_K: scales of the halves, each row twice
} pair;

// PAIR_TWO is the number of bytes of two groups of a pair; eight pairs fit
// where rm_tile_scratch has room for 16 rows.
#define PAIR_TWO (128 + 3 * 16 + 64)
#define PAIRS 8
_Static_assert(PAIRS * PAIR_TWO <= 2 * RM_PANEL_GROUP, "16 unpacked rows fit the scratch");

INLINE pair pair_at(uint8_t *mem, int64_t groups) {
	int64_t twos = groups / 2;
	pair p = {.supers = groups / 8, .w = (int8_t *)mem, .s = (float *)(void *)(mem + 128 * twos)};
	p.m0 = p.s + 4 * twos;
	p.m1 = p.m0 + 4 * twos;
	p.k = (int32_t *)(void *)(p.m1 + 4 * twos);
	return p;
}

INLINE int8x16_t first_halves(int8x16_t a, int8x16_t b) {
	return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

INLINE int8x16_t last_halves(int8x16_t a, int8x16_t b) {
	return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// put_floats stores the floats of 8 groups of two rows, `step` floats apart.
INLINE void put_floats(const float32x4_t a[2], const float32x4_t b[2], float *dst, int64_t step) {
	for (int h = 0; h < 2; h++) {
		vst1q_f32(dst + 2 * h * step, vzip1q_f32(a[h], b[h]));
		vst1q_f32(dst + (2 * h + 1) * step, vzip2q_f32(a[h], b[h]));
	}
}

// pack fills a pair from two rows.
INLINE void pack(unpack_fn unpack, int kind, int min, int bytes, const uint8_t *w0, const uint8_t *w1, int64_t cols,
                 const pair *p) {
	for (int64_t j = 0; j < p->supers; j++, w0 += bytes, w1 += bytes) {
		super u[2];
		int64_t left = (cols - 256 * j) / 32;
		if (left >= 8) {
			unpack(w0, 8, &u[0]);
			unpack(w1, 8, &u[1]);
		} else {
			unpack(w0, (int)left, &u[0]);
			unpack(w1, (int)left, &u[1]);
		}
		for (int g = 0; g < 8; g++) {
			int64_t i = g / 2 * p->supers + j;
			for (int v = 0; v < 2; v++) {
				int8_t *dst = p->w + 128 * i + 64 * (g % 2) + 32 * v;
				vst1q_s8(dst, first_halves(u[0].q[2 * g + v], u[1].q[2 * g + v]));
				vst1q_s8(dst + 16, last_halves(u[0].q[2 * g + v], u[1].q[2 * g + v]));
			}
		}
		put_floats(u[0].s, u[1].s, p->s + 4 * j, 4 * p->supers);
		if (min != MIN_NONE) put_floats(u[0].m0, u[1].m0, p->m0 + 4 * j, 4 * p->supers);
		if (min == MIN_16) put_floats(u[0].m1, u[1].m1, p->m1 + 4 * j, 4 * p->supers);
		for (int l = 0; kind == KIND_K && l < 4; l++) { // groups 2l and 2l+1
			int32_t *dst = p->k + 16 * (l * p->supers + j);
			int32x4_t low = vzip1q_s32(u[0].k[l], u[1].k[l]), high = vzip2q_s32(u[0].k[l], u[1].k[l]);
			vst1q_s32(dst, vzip1q_s32(low, low));
			vst1q_s32(dst + 4, vzip2q_s32(low, low));
			vst1q_s32(dst + 8, vzip1q_s32(high, high));
			vst1q_s32(dst + 12, vzip2q_s32(high, high));
		}
	}
}

// ---- tokens ----------------------------------------------------------------

// A batch is RM_BATCH tokens one after the other, groups in the order of a
// pair: n [groups][4][16], 8 upper bytes and 8 lower ones; then d, b, b0, b1
// [groups].
typedef struct {
	const int8_t *n;
	const float *d, *b, *b0, *b1;
} token;

INLINE token token_at(const uint8_t *batch, int64_t i, int64_t groups) {
	token t = {.n = (const int8_t *)(batch + 80 * groups * i)};
	t.d = (const float *)(const void *)(t.n + 64 * groups);
	t.b = t.d + groups;
	t.b0 = t.b + groups;
	t.b1 = t.b0 + groups;
	return t;
}

void rm_i8mm_gather(const void *const *x, int64_t n, int64_t cols, uint8_t *batch) {
	int64_t groups = rm_act_padded(cols) / 32, supers = groups / 8;
	for (int64_t t = 0; t < n; t++) {
		rm_act a = rm_act_at(x[t], cols);
		int8_t *dst = (int8_t *)(batch + 80 * groups * t);
		float *f = (float *)(void *)(dst + 64 * groups);
		for (int64_t g = 0; g < groups; g++) {
			int64_t i = 2 * (g % 8 / 2 * supers + g / 8) + g % 2;
			for (int v = 0; v < 2; v++) {
				int8x16_t q = vld1q_s8(a.q + 32 * g + 16 * v), r = vld1q_s8(a.r + 32 * g + 16 * v);
				vst1q_s8(dst + 64 * i + 32 * v, first_halves(q, r));
				vst1q_s8(dst + 64 * i + 32 * v + 16, last_halves(q, r));
			}
			f[i] = a.d[g];
			f[groups + i] = a.b[g];
			f[2 * groups + i] = a.b0[g];
			f[3 * groups + i] = a.b1[g];
		}
	}
}

// ---- products --------------------------------------------------------------

// group_dots multiplies 32 weights of two rows by the upper and the lower
// bytes.
INLINE int32x4_t group_dots(const int8_t *w, const int32_t *k, int kind, const int8_t *n) {
	int32x4_t zero = vdupq_n_s32(0);
	int32x4_t a = vmmlaq_s32(vmmlaq_s32(zero, vld1q_s8(w), vld1q_s8(n)), vld1q_s8(w + 16), vld1q_s8(n + 16));
	if (kind == KIND_S) return vmmlaq_s32(vmmlaq_s32(a, vld1q_s8(w + 32), vld1q_s8(n + 32)), vld1q_s8(w + 48), vld1q_s8(n + 48));
	int32x4_t b = vmmlaq_s32(vmmlaq_s32(zero, vld1q_s8(w + 32), vld1q_s8(n + 32)), vld1q_s8(w + 48), vld1q_s8(n + 48));
	return vmlaq_s32(vmulq_s32(a, vld1q_s32(k)), b, vld1q_s32(k + 4));
}

// twice is a, a, b, b of the floats a and b at p.
INLINE float32x4_t twice(const float *p) {
	float32x2_t v = vld1_f32(p);
	return vcombine_f32(vdup_lane_f32(v, 0), vdup_lane_f32(v, 1));
}

// give_pair stores the sums of two rows, of the second if `second`: rm_give_sums, once for
// all columns. lanes[l] has lane 2*l of both rows, then lane 2*l+1.
INLINE void give_pair(const float32x4_t lanes[4], const rm_row_sums *s, float *out, int second) {
	if (s->each) {
		float a[2][8];
		for (int l = 0; l < 4; l++) {
			float v[4];
			vst1q_f32(v, lanes[l]);
			for (int r = 0; r < 2; r++) a[r][2 * l] = v[r], a[r][2 * l + 1] = v[2 + r];
		}
		for (int r = 0; r < 1 + second; r++) rm_give_sums(s, 0, a[r], out + r);
		return;
	}
	float32x4_t v = vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3])); // rm_sum8
	float32x2_t sums = vadd_f32(vget_low_f32(v), vget_high_f32(v));
	out[0] = vget_lane_f32(sums, 0);
	if (second) out[1] = vget_lane_f32(sums, 1);
}

// pair_dots is two pairs times nt tokens; of the rows the first nrows <= 4 are
// stored to out[i] + off.
INLINE void pair_dots(const pair *p, int nt, int kind, int min, const token *x, float *const *out, int64_t off,
                      int64_t nrows, const rm_row_sums *sums) {
	float32x4_t lanes[2][4][4];
	int64_t i = 0;
	for (int l = 0; l < 4; l++) {
		float32x4_t acc[2][4];
		RM_UNROLL
		for (int c = 0; c < 2 * nt; c++) acc[c / nt][c % nt] = vdupq_n_f32(0);
		for (int64_t j = 0; j < p->supers; j++, i++) {
			int32x4_t t[2][4];
			RM_UNROLL
			for (int c = 0; c < 2 * nt; c++) {
				const pair *y = &p[c / nt];
				const int8_t *w = y->w + 128 * i, *n = x[c % nt].n + 128 * i;
				int32x4_t even = group_dots(w, y->k + 16 * i, kind, n);
				int32x4_t odd = group_dots(w + 64, y->k + 16 * i + 8, kind, n + 64);
				t[c / nt][c % nt] = vaddq_s32(vshlq_n_s32(vuzp1q_s32(even, odd), 7), vuzp2q_s32(even, odd));
			}
			RM_UNROLL
			for (int c = 0; c < 2 * nt; c++) {
				const pair *y = &p[c / nt];
				const token *z = &x[c % nt];
				float32x4_t v = acc[c / nt][c % nt];
				if (min == MIN_32) v = vfmaq_f32(v, vld1q_f32(y->m0 + 4 * i), twice(z->b + 2 * i));
				if (min == MIN_16) {
					v = vfmaq_f32(v, vld1q_f32(y->m0 + 4 * i), twice(z->b0 + 2 * i));
					v = vfmaq_f32(v, vld1q_f32(y->m1 + 4 * i), twice(z->b1 + 2 * i));
				}
				float32x4_t factor = vmulq_f32(vld1q_f32(y->s + 4 * i), twice(z->d + 2 * i));
				acc[c / nt][c % nt] = vfmaq_f32(v, factor, vcvtq_f32_s32(t[c / nt][c % nt]));
			}
		}
		for (int c = 0; c < 2 * nt; c++) lanes[c / nt][c % nt][l] = acc[c / nt][c % nt];
	}
	for (int c = 0; c < 2 * nt; c++) {
		int a = c / nt, k = c % nt;
		if (2 * a < nrows) give_pair(lanes[a][k], sums, out[k] + off + 2 * a, 2 * a + 1 < nrows);
	}
}

// dots_fn is pair_dots for one kind of type and number of tokens.
typedef void (*dots_fn)(const pair *p, const token *x, float *const *out, int64_t off, int64_t nrows, const rm_row_sums *sums);

#define DEFINE_DOTS(kind, min, nt) \
	static void dots_##kind##_##min##_##nt(const pair *p, const token *x, float *const *out, int64_t off, int64_t nrows, \
	                                       const rm_row_sums *sums) { \
		pair_dots(p, nt, kind, min, x, out, off, nrows, sums); \
	}
#define DEFINE_DOTS_OF(kind, min) DEFINE_DOTS(kind, min, 1) DEFINE_DOTS(kind, min, 2) DEFINE_DOTS(kind, min, 4)
DEFINE_DOTS_OF(KIND_S, MIN_NONE)
DEFINE_DOTS_OF(KIND_S, MIN_32)
DEFINE_DOTS_OF(KIND_K, MIN_NONE)
DEFINE_DOTS_OF(KIND_K, MIN_16)
#define DOTS_OF(kind, min) {dots_##kind##_##min##_1, dots_##kind##_##min##_2, dots_##kind##_##min##_4}

typedef void (*pack_fn)(const uint8_t *w0, const uint8_t *w1, int64_t cols, const pair *p);

// pairs computes a tile over t->batches. Beyond the last row, the last row is
// repeated.
static void pairs(pack_fn pack_rows, const dots_fn dots[3], const rm_tile *t) {
	int64_t groups = rm_act_padded(t->cols) / 32;
	for (int64_t r0 = 0; r0 < t->nrows; r0 += 2 * PAIRS) {
		int64_t rows = t->nrows - r0 < 2 * PAIRS ? t->nrows - r0 : 2 * PAIRS;
		pair p[PAIRS];
		for (int64_t r = 0; r < (rows + 3) / 4 * 4; r += 2) {
			int64_t a = r < rows ? r : rows - 1, b = r + 1 < rows ? r + 1 : rows - 1;
			p[r / 2] = pair_at(t->scratch + PAIR_TWO * groups / 2 * (r / 2), groups);
			pack_rows(t->w + (r0 + a) * t->row_bytes, t->w + (r0 + b) * t->row_bytes, t->cols, &p[r / 2]);
		}
		for (int64_t i = 0, nt; i < t->nx; i += nt) {
			int64_t left = t->nx - i;
			int size_of = left >= 4 ? 2 : left >= 2 ? 1 : 0;
			token x[4];
			nt = 1 << size_of;
			for (int64_t k = 0; k < nt; k++) {
				const uint8_t *batch = t->batches + (i + k) / RM_BATCH * rm_batch_bytes(t->cols);
				x[k] = token_at(batch, (i + k) % RM_BATCH, groups);
			}
			for (int64_t r = 0; r < rows; r += 4) dots[size_of](p + r / 2, x, t->out + i, t->off + r0 + r, rows - r, &t->sums);
		}
	}
}

#define DEFINE_TILE(name, type, kind, min, bytes) \
	static void pack_##name(const uint8_t *w0, const uint8_t *w1, int64_t cols, const pair *p) { \
		pack(unpack_##name, kind, min, bytes, w0, w1, cols, p); \
	} \
	void rm_i8mm_##name(const rm_tile *t) { \
		static const dots_fn dots[3] = DOTS_OF(kind, min); \
		if (t->batches) { \
			pairs(pack_##name, dots, t); \
		} else { \
			rm_kernels_neon.tile[type](t); \
		} \
	}
EACH_TYPE(DECLARE_I8MM)
EACH_TYPE(DEFINE_TILE)

RM_END_TARGET
#endif
