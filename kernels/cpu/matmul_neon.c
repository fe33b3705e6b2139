// GEMM and GEMV kernels for aarch64 with byte dot products (ARMv8.2 dotprod):
// by rows, each unpacked once for four tokens. Processors with byte matrix
// products (i8mm) use the tiles of matmul_neon_i8mm.c for several tokens.
#include "matmul.h"
#include "tables.h"

#if RM_NEON
RM_BEGIN_NEON

#include "exp_neon.inc.h"
#include "matmul_neon.inc.h"

INLINE int32x4_t dot16(int32x4_t t, int8x16_t w, const int8_t *a) { return vdotq_s32(t, w, vld1q_s8(a)); }

// group_dots holds partial sums of the dot product of 32 weights with the
// group's values 128*q + r.
INLINE int32x4_t group_dots(const int8x16_t *w, const int8_t *q, const int8_t *r, int upper_only) {
	int32x4_t t = vshlq_n_s32(dot16(dot16(vdupq_n_s32(0), w[0], q), w[1], q + 16), 7);
	return upper_only ? t : dot16(dot16(t, w[0], r), w[1], r + 16);
}

// half_dots is the same for 16 weights.
INLINE int32x4_t half_dots(int8x16_t w, const int8_t *q, const int8_t *r, int upper_only) {
	int32x4_t t = vshlq_n_s32(dot16(vdupq_n_s32(0), w, q), 7);
	return upper_only ? t : dot16(t, w, r);
}

// dots4 gives the dot products of groups 4*h to 4*h+3 with the activations from
// group g0 on.
INLINE int32x4_t dots4(const super *u, int kind, int upper_only, int h, const rm_act *a, int64_t g0) {
	const int8_t *q = a->q + 32 * (g0 + 4 * h), *r = a->r + 32 * (g0 + 4 * h);
	const int8x16_t *w = u->q + 8 * h;
	if (kind == KIND_S) {
		int32x4_t t[4];
		RM_UNROLL
		for (int g = 0; g < 4; g++) t[g] = group_dots(w + 2 * g, q + 32 * g, r + 32 * g, upper_only);
		return vpaddq_s32(vpaddq_s32(t[0], t[1]), vpaddq_s32(t[2], t[3]));
	}
	int32x4_t t[8];
	RM_UNROLL
	for (int i = 0; i < 8; i++) t[i] = half_dots(w[i], q + 16 * i, r + 16 * i, upper_only);
	int32x4_t low = vpaddq_s32(vpaddq_s32(t[0], t[1]), vpaddq_s32(t[2], t[3]));
	int32x4_t high = vpaddq_s32(vpaddq_s32(t[4], t[5]), vpaddq_s32(t[6], t[7]));
	return vpaddq_s32(vmulq_s32(low, u->k[2 * h]), vmulq_s32(high, u->k[2 * h + 1]));
}

// add_super adds 256 columns (groups g0..g0+7) to the lanes of one output.
INLINE void add_super(float32x4_t acc[2], const super *u, int kind, int min, int upper_only, const rm_act *a, int64_t g0) {
	RM_UNROLL
	for (int h = 0; h < 2; h++) {
		int64_t g = g0 + 4 * h;
		float32x4_t v = acc[h];
		if (min == MIN_32) v = vfmaq_f32(v, u->m0[h], vld1q_f32(a->b + g));
		if (min == MIN_16) {
			v = vfmaq_f32(v, u->m0[h], vld1q_f32(a->b0 + g));
			v = vfmaq_f32(v, u->m1[h], vld1q_f32(a->b1 + g));
		}
		float32x4_t t = vcvtq_f32_s32(dots4(u, kind, upper_only, h, a, g0));
		acc[h] = vfmaq_f32(v, vmulq_f32(u->s[h], vld1q_f32(a->d + g)), t);
	}
}

// sum4 is the sum of the lanes in the order of rm_sum8 and rm_sum16.
INLINE float sum4(float32x4_t v) {
	float32x2_t h = vadd_f32(vget_low_f32(v), vget_high_f32(v));
	return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}

// give_row stores the sums of the lanes of row r and token i: rm_give_sums.
INLINE void give_row(const rm_tile *t, int64_t r, int64_t i, int64_t time, const float32x4_t acc[2]) {
	float *out = t->out[i] + t->off + r;
	if (!t->sums.each) {
		out[time * t->sums.apart] = sum4(vaddq_f32(acc[0], acc[1]));
		return;
	}
	float lanes[8];
	vst1q_f32(lanes, acc[0]);
	vst1q_f32(lanes + 4, acc[1]);
	rm_give_sums(&t->sums, time, lanes, out);
}

// row_dots is weight row r times the nt tokens from token first on; bytes is the size of 256
// columns.
INLINE void row_dots(unpack_fn unpack, int kind, int min, int bytes, int upper_only, const rm_tile *t, int64_t r,
                     const rm_act *a, int64_t first, int nt) {
	const uint8_t *w = t->w + r * t->row_bytes;
	int64_t cols = t->cols, time = 0, at = rm_sums_at(&t->sums);
	float32x4_t acc[4][2];
	for (int i = 0; i < nt; i++) acc[i][0] = acc[i][1] = vdupq_n_f32(0);
	super u;
	for (int64_t g = 0; 32 * g < cols; g += 8, w += bytes) {
		if (g == at) {
			for (int i = 0; i < nt; i++) {
				give_row(t, r, first + i, time, acc[i]);
				acc[i][0] = acc[i][1] = vdupq_n_f32(0);
			}
			time++;
			at += 8 * t->sums.supers;
		}
		int64_t left = (cols - 32 * g) / 32;
		if (left >= 8) {
			unpack(w, 8, &u);
		} else {
			unpack(w, (int)left, &u);
		}
		RM_UNROLL
		for (int i = 0; i < nt; i++) add_super(acc[i], &u, kind, min, upper_only, &a[i], g);
	}
	for (int i = 0; i < nt; i++) give_row(t, r, first + i, time, acc[i]);
}

// rows_dots computes a tile by rows: each row is unpacked once for four tokens.
INLINE void rows_dots(unpack_fn unpack, int kind, int min, int bytes, int upper_only, const rm_tile *t) {
	int64_t i = 0;
	for (; i + 4 <= t->nx; i += 4) {
		rm_act a[4];
		for (int j = 0; j < 4; j++) a[j] = rm_act_at(t->x[i + j], t->cols);
		for (int64_t r = 0; r < t->nrows; r++) row_dots(unpack, kind, min, bytes, upper_only, t, r, a, i, 4);
	}
	for (; i < t->nx; i++) {
		rm_act a = rm_act_at(t->x[i], t->cols);
		for (int64_t r = 0; r < t->nrows; r++) row_dots(unpack, kind, min, bytes, upper_only, t, r, &a, i, 1);
	}
}

#define DEFINE_ROWS(name, type, kind, min, bytes) \
	static void tile_##name(const rm_tile *t) { \
		if (t->upper_only) { \
			rows_dots(unpack_##name, kind, min, bytes, 1, t); \
		} else { \
			rows_dots(unpack_##name, kind, min, bytes, 0, t); \
		} \
	}
EACH_TYPE(DEFINE_ROWS)

// bytes16 narrows 16 small integers to bytes.
INLINE int8x16_t bytes16(const int32x4_t n[4]) {
	int16x8_t a = vcombine_s16(vmovn_s32(n[0]), vmovn_s32(n[1])), b = vcombine_s16(vmovn_s32(n[2]), vmovn_s32(n[3]));
	return vcombine_s8(vmovn_s16(a), vmovn_s16(b));
}

// quantise fills an rm_act row.
static void quantise(const float *x, int64_t cols, void *row, int upper_only) {
	rm_act a = rm_act_at(row, cols);
	for (int64_t g = 0; g < a.groups; g++) {
		if (32 * g >= cols) {
			memset(a.q + 32 * g, 0, 32);
			memset(a.r + 32 * g, 0, 32);
			rm_act_finish(&a, g, 0, 0, 0);
			continue;
		}
		float32x4_t v[8];
		uint32x4_t largest = vdupq_n_u32(0);
		for (int i = 0; i < 8; i++) {
			v[i] = vld1q_f32(x + 32 * g + 4 * i);
			largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v[i])));
		}
		float inverse, d = rm_act_scale(vmaxvq_u32(largest), upper_only, &inverse);
		int32_t s[2];
		for (int h = 0; h < 2; h++) {
			int32x4_t n[4], upper[4], lower[4];
			for (int i = 0; i < 4; i++) {
				n[i] = d == d ? vcvtnq_s32_f32(vmulq_n_f32(v[4 * h + i], inverse)) : vdupq_n_s32(0);
				if (upper_only) n[i] = vshlq_n_s32(n[i], 7);
				upper[i] = vrshrq_n_s32(n[i], 7); // (n + 64) >> 7
				lower[i] = vsubq_s32(n[i], vshlq_n_s32(upper[i], 7));
			}
			vst1q_s8(a.q + 32 * g + 16 * h, bytes16(upper));
			vst1q_s8(a.r + 32 * g + 16 * h, bytes16(lower));
			s[h] = vaddvq_s32(vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3])));
		}
		rm_act_finish(&a, g, d, s[0], s[1]);
	}
}

// floats4 reads 4 elements of F32, F16 or BF16.
INLINE float32x4_t floats4(int32_t type, const uint8_t *p) {
	if (type == RM_F32) return vreinterpretq_f32_u8(vld1q_u8(p));
	uint16x4_t h = vreinterpret_u16_u8(vld1_u8(p));
	return type == RM_F16 ? half4(h) : vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(h), 16));
}

// widen_nvfp4 converts n weights of NVFP4: 16 have a scale and eight bytes, the first eight in
// their low nibbles.
INLINE void widen_nvfp4(const uint8_t *src, float *dst, int64_t n) {
	int8x16_t table = vld1q_s8(rm_mxfp4_values);
	for (int64_t i = 0; i < n; i += 16) {
		const uint8_t *block = src + i / 64 * 36;
		int64_t k = i / 16 % 4;
		uint8x8_t q = vld1_u8(block + 4 + 8 * k);
		int8x16_t v = vqtbl1q_s8(table, vcombine_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4)));
		int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_s8(vget_high_s8(v));
		float d = rm_nvfp4_scales[block[k]];
		vst1q_f32(dst + i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), d));
		vst1q_f32(dst + i + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))), d));
		vst1q_f32(dst + i + 8, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), d));
		vst1q_f32(dst + i + 12, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))), d));
	}
}

// widen converts a row of any type to float32.
static void widen(int32_t type, const uint8_t *src, float *dst, int64_t n) {
	int64_t i = 0;
	if (type == RM_F16) {
		for (; i + 4 <= n; i += 4) vst1q_f32(dst + i, floats4(RM_F16, src + 2 * i));
	} else if (type == RM_BF16) {
		for (; i + 4 <= n; i += 4) vst1q_f32(dst + i, floats4(RM_BF16, src + 2 * i));
	} else if (type == RM_NVFP4) {
		widen_nvfp4(src, dst, n);
		return;
	}
	rm_dequant_row(type, i > 0 ? src + 2 * i : src, dst + i, n - i);
}

static void narrow(const float *src, uint16_t *dst, int64_t n) {
	int64_t i = 0;
	for (; i + 4 <= n; i += 4) vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
	for (; i < n; i++) dst[i] = rm_float_to_float16(src[i]);
}

static void glu(float *mid, const float *g, const float *u, int64_t n, float weight, float clamp) {
	int64_t i = 0;
	float32x4_t high = vdupq_n_f32(clamp > 1e-6f ? clamp : INFINITY), low = vnegq_f32(high), one = vdupq_n_f32(1);
	for (; i + 4 <= n; i += 4) {
		float32x4_t a = vld1q_f32(g + i), b = vld1q_f32(u + i);
		a = vbslq_f32(vcltq_f32(high, a), high, a); // a NaN is kept
		b = vbslq_f32(vcltq_f32(high, b), high, b);
		b = vbslq_f32(vcgtq_f32(low, b), low, b);
		float32x4_t silu = vdivq_f32(a, vaddq_f32(one, rm_exp_neon(vnegq_f32(a))));
		vst1q_f32(mid + i, vmulq_f32(vmulq_n_f32(silu, weight), b));
	}
	for (; i < n; i++) mid[i] = rm_glu(g[i], u[i], weight, clamp);
}

// dense_block is nr rows of a type without blocks times nt tokens, 16 lanes each
// in four vectors.
INLINE void dense_block(int32_t type, const uint8_t *const *rows, int nr, int64_t cols, const float *const *x, int nt,
                        float *const *out, int64_t off) {
	int size = type == RM_F32 ? 4 : 2;
	float32x4_t a[2][2][4];
	for (int k = 0; k < 4 * nr * nt; k++) a[k / 4 / nt][k / 4 % nt][k % 4] = vdupq_n_f32(0);
	int64_t i = 0;
	for (; i + 16 <= cols; i += 16) {
		RM_UNROLL
		for (int v = 0; v < 4; v++) {
			float32x4_t w[2];
			for (int r = 0; r < nr; r++) w[r] = floats4(type, rows[r] + size * (i + 4 * v));
			for (int t = 0; t < nt; t++) {
				float32x4_t y = vld1q_f32(x[t] + i + 4 * v);
				for (int r = 0; r < nr; r++) a[r][t][v] = vfmaq_f32(a[r][t][v], w[r], y);
			}
		}
	}
	if (i < cols) {
		size_t left = (size_t)(cols - i);
		for (int r = 0; r < nr; r++) {
			uint8_t w[64] = {0};
			memcpy(w, rows[r] + size * i, left * (size_t)size);
			for (int t = 0; t < nt; t++) {
				float y[16] = {0};
				memcpy(y, x[t] + i, left * sizeof(float));
				for (int v = 0; v < 4; v++) {
					a[r][t][v] = vfmaq_f32(a[r][t][v], floats4(type, w + 4 * size * v), vld1q_f32(y + 4 * v));
				}
			}
		}
	}
	for (int r = 0; r < nr; r++) {
		for (int t = 0; t < nt; t++) {
			const float32x4_t *v = a[r][t]; // rm_sum16
			out[t][off + r] = sum4(vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3])));
		}
	}
}

INLINE void dense_rows(int32_t type, const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x,
                       int64_t nx, float *const *out, int64_t off) {
	for (int64_t r = 0; r < nr; r += 2) {
		int64_t t = 0;
		if (r + 2 <= nr) {
			for (; t + 2 <= nx; t += 2) dense_block(type, rows + r, 2, cols, x + t, 2, out + t, off + r);
			for (; t < nx; t++) dense_block(type, rows + r, 2, cols, x + t, 1, out + t, off + r);
		} else {
			for (; t < nx; t++) dense_block(type, rows + r, 1, cols, x + t, 1, out + t, off + r);
		}
	}
}

static void dense(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                  float *const *out, int64_t off) {
	dense_rows(RM_F32, rows, nr, cols, x, nx, out, off);
}

// tile_halves is a tile of 16-bit weights, which are converted in registers.
INLINE void tile_halves(int32_t type, const rm_tile *t) {
	for (int64_t r = 0; r < t->nrows; r += 2) {
		const uint8_t *rows[2] = {t->w + r * t->row_bytes, t->w + (r + 1) * t->row_bytes};
		int64_t n = t->nrows - r < 2 ? 1 : 2;
		dense_rows(type, rows, n, t->cols, (const float *const *)t->x, t->nx, t->out, t->off + r);
	}
}

static void tile_f16(const rm_tile *t) { tile_halves(RM_F16, t); }
static void tile_bf16(const rm_tile *t) { tile_halves(RM_BF16, t); }

RM_END_TARGET

#define ENTRY(name, type, kind, min, bytes) [type] = tile_##name,
#define ROWS {EACH_TYPE(ENTRY)[RM_F16] = tile_f16, [RM_BF16] = tile_bf16}
const rm_kernels rm_kernels_neon = {
    .quantise = quantise,
    .widen = widen,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = ROWS,
};

#if RM_NEON_I8MM
EACH_TYPE(DECLARE_I8MM)
#define I8MM_ENTRY(name, type, kind, min, bytes) [type] = rm_i8mm_##name,
#define PAIRS {EACH_TYPE(I8MM_ENTRY)[RM_F16] = tile_f16, [RM_BF16] = tile_bf16}
const rm_kernels rm_kernels_neon_i8mm = {
    .quantise = quantise,
    .widen = widen,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = PAIRS,
    .gather = rm_i8mm_gather,
    .gather_from = 3,
};
#endif
#endif
