// GEMM and GEMV kernels in plain C: for processors without a SIMD level, and
// the reference for the other levels.
#include "matmul.h"
#include "tables.h"

// super is 256 weights of a row: values with their integer sub-block scales
// multiplied in, float scales and negated minima by group (half groups: m0, m1).
typedef struct {
	int16_t q[256];
	float s[8], m0[8], m1[8];
} super;

// minima: none, one per group, or one per half of a group.
enum { MIN_NONE, MIN_32, MIN_16 };

static inline float half_at(const uint8_t *p) { return rm_float16_to_float(rm_load16(p)); }

// q5 is element i of the five-bit types: h holds the high bits, q the low
// nibbles.
static inline int q5(uint32_t h, const uint8_t *q, int i) {
	int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
	return low | (int)(h >> i & 1) << 4;
}

static inline int nibble(const uint8_t *q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

// Each unpack_ reads n groups (8 for types with blocks of 256); the rest is
// left as it is and not used.
#define UNPACK32(name, bytes, scale, value) \
	static void unpack_##name(const uint8_t *w, int n, super *u) { \
		for (int g = 0; g < n; g++) { \
			const uint8_t *b = w + bytes * g; \
			u->s[g] = scale; \
			for (int i = 0; i < 32; i++) u->q[32 * g + i] = (int16_t)(value); \
		} \
	}

UNPACK32(q8_0, 34, half_at(b), (int8_t)b[2 + i])
UNPACK32(q4_0, 18, half_at(b), nibble(b + 2, i) - 8)
UNPACK32(q4_1, 20, (u->m0[g] = half_at(b + 2), half_at(b)), nibble(b + 4, i))
UNPACK32(q5_0, 22, half_at(b), q5(rm_load32(b + 2), b + 6, i) - 16)
UNPACK32(q5_1, 24, (u->m0[g] = half_at(b + 2), half_at(b)), q5(rm_load32(b + 4), b + 8, i))
UNPACK32(iq4_nl, 18, half_at(b), rm_iq4nl_values[nibble(b + 2, i)])
UNPACK32(mxfp4, 17, rm_mxfp4_scale(b[0]), rm_mxfp4_values[nibble(b + 1, i)])

// The types below have blocks of 256; value may use i in [0, 256), g = i/32.
#define UNPACK256(name, scale, value) \
	static void unpack_##name(const uint8_t *b, int n, super *u) { \
		(void)n; \
		for (int g = 0; g < 8; g++) u->s[g] = scale; \
		for (int i = 0; i < 256; i++) u->q[i] = (int16_t)(value); \
	}

static inline int q2k(const uint8_t *b, int i) {
	return (b[16 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3) * (b[i / 16] & 15);
}

static inline int q3k(const uint8_t *b, int i) {
	int q = b[32 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
	if (!(b[i % 32] >> (i / 32) & 1)) q -= 4;
	return q * (rm_q3k_scale(b + 96, i / 16) - 32);
}

static inline int q6k(const uint8_t *b, int i) {
	int h = i / 128, r = i / 32 % 4, l = i % 32;
	int q = b[64 * h + 32 * (r % 2) + l] >> (r / 2 * 4) & 15;
	q |= (b[128 + 32 * h + l] >> (2 * r) & 3) << 4;
	return (q - 32) * (int8_t)b[192 + i / 16];
}

static inline int iq2xxs(const uint8_t *b, int i) {
	const uint8_t *p = b + 2 + 8 * (i / 32);
	int k = i / 8 % 4, j = i % 8;
	int v = (int)(rm_iq2xxs_grid[p[k]] >> (8 * j) & 255);
	return rm_sign_masks[rm_load32(p + 4) >> (7 * k) & 127] >> j & 1 ? -v : v;
}

UNPACK256(q2_k, (u->m0[g] = -(half_at(b + 82) * (float)(b[2 * g] >> 4)),
                 u->m1[g] = -(half_at(b + 82) * (float)(b[2 * g + 1] >> 4)), half_at(b + 80)), q2k(b, i))
UNPACK256(q3_k, half_at(b + 108), q3k(b, i))
UNPACK256(q4_k, (u->m0[g] = -(half_at(b + 2) * (float)rm_q4k_min(b + 4, g)),
                 half_at(b) * (float)rm_q4k_scale(b + 4, g)), b[16 + 32 * (i / 64) + i % 32] >> (i / 32 % 2 * 4) & 15)
UNPACK256(q5_k, (u->m0[g] = -(half_at(b + 2) * (float)rm_q4k_min(b + 4, g)),
                 half_at(b) * (float)rm_q4k_scale(b + 4, g)),
          (b[48 + 32 * (i / 64) + i % 32] >> (i / 32 % 2 * 4) & 15) | (b[16 + i % 32] >> (i / 32) & 1) << 4)
UNPACK256(q6_k, half_at(b + 208), q6k(b, i))
UNPACK256(iq2_xxs, half_at(b) * (0.5f + (float)(rm_load32(b + 6 + 8 * g) >> 28)) * 0.25f, iq2xxs(b, i))
UNPACK256(iq4_xs, half_at(b) * (float)rm_iq4xs_scale(b, g), rm_iq4nl_values[nibble(b + 8 + 16 * (i / 32), i % 32)])

// add_super adds n groups from group g0 on to the lanes of one output.
static void add_super(float *acc, const super *u, int n, int min, const rm_act *a, int64_t g0) {
	for (int l = 0; l < n; l++) {
		int64_t g = g0 + l;
		if (min == MIN_32) acc[l] = rm_fma(u->m0[l], a->b[g], acc[l]);
		if (min == MIN_16) {
			acc[l] = rm_fma(u->m0[l], a->b0[g], acc[l]);
			acc[l] = rm_fma(u->m1[l], a->b1[g], acc[l]);
		}
		int32_t t = 0;
		for (int i = 0; i < 32; i++) t += u->q[32 * l + i] * (128 * a->q[32 * g + i] + a->r[32 * g + i]);
		acc[l] = rm_fma(u->s[l] * a->d[g], (float)t, acc[l]);
	}
}

#define TOKENS 8

// rows_dots computes a tile by rows: each row is unpacked once for TOKENS
// tokens.
static void rows_dots(void (*unpack)(const uint8_t *, int, super *), int min, int bytes, const rm_tile *t) {
	super u;
	memset(&u, 0, sizeof u);
	for (int64_t i0 = 0; i0 < t->nx; i0 += TOKENS) {
		int n = t->nx - i0 < TOKENS ? (int)(t->nx - i0) : TOKENS;
		rm_act a[TOKENS];
		for (int i = 0; i < n; i++) a[i] = rm_act_at(t->x[i0 + i], t->cols);
		for (int64_t r = 0; r < t->nrows; r++) {
			float acc[TOKENS][8] = {{0}};
			const uint8_t *w = t->w + r * t->row_bytes;
			int64_t time = 0, at = rm_sums_at(&t->sums);
			for (int64_t g = 0; 32 * g < t->cols; g += 8, w += bytes) {
				if (g == at) {
					for (int i = 0; i < n; i++) rm_give_sums(&t->sums, time, acc[i], t->out[i0 + i] + t->off + r);
					memset(acc, 0, sizeof acc);
					time++;
					at += 8 * t->sums.supers;
				}
				int64_t left = t->cols / 32 - g;
				int groups = left < 8 ? (int)left : 8;
				unpack(w, groups, &u);
				for (int i = 0; i < n; i++) add_super(acc[i], &u, groups, min, &a[i], g);
			}
			for (int i = 0; i < n; i++) rm_give_sums(&t->sums, time, acc[i], t->out[i0 + i] + t->off + r);
		}
	}
}

#define EACH_TYPE(F) \
	F(q8_0, RM_Q8_0, MIN_NONE, 272) \
	F(q4_0, RM_Q4_0, MIN_NONE, 144) \
	F(q4_1, RM_Q4_1, MIN_32, 160) \
	F(q5_0, RM_Q5_0, MIN_NONE, 176) \
	F(q5_1, RM_Q5_1, MIN_32, 192) \
	F(iq4_nl, RM_IQ4_NL, MIN_NONE, 144) \
	F(mxfp4, RM_MXFP4, MIN_NONE, 136) \
	F(q2_k, RM_Q2_K, MIN_16, 84) \
	F(q3_k, RM_Q3_K, MIN_NONE, 110) \
	F(q4_k, RM_Q4_K, MIN_32, 144) \
	F(q5_k, RM_Q5_K, MIN_32, 176) \
	F(q6_k, RM_Q6_K, MIN_NONE, 210) \
	F(iq2_xxs, RM_IQ2_XXS, MIN_NONE, 66) \
	F(iq4_xs, RM_IQ4_XS, MIN_NONE, 136)

#define DEFINE_TILE(name, type, min, bytes) \
	static void tile_##name(const rm_tile *t) { rows_dots(unpack_##name, min, bytes, t); }
EACH_TYPE(DEFINE_TILE)

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
		uint32_t largest = 0;
		for (int i = 0; i < 32; i++) {
			uint32_t m = rm_float_to_bits(x[32 * g + i]) & 0x7fffffffu;
			if (m > largest) largest = m;
		}
		float inverse, d = rm_act_scale(largest, upper_only, &inverse);
		int32_t s[2] = {0, 0};
		for (int i = 0; i < 32; i++) {
			// Adding 1.5*2^23 leaves the value, rounded to nearest even, in the
			// low bits.
			float v = d == d ? x[32 * g + i] * inverse : 0;
			int32_t n = (int32_t)(rm_float_to_bits(v + 12582912.0f) - 0x4b400000u) * (upper_only ? 128 : 1);
			rm_act_set(&a, 32 * g + i, n);
			s[i / 16] += n;
		}
		rm_act_finish(&a, g, d, s[0], s[1]);
	}
}

// mul_add is fma where the processor has it, for the many sums of dense.
static inline float mul_add(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
	return __builtin_fmaf(a, b, c);
#else
	return a * b + c;
#endif
}

static void dense(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                  float *const *out, int64_t off) {
	for (int64_t r = 0; r < nr; r++) {
		for (int64_t t = 0; t < nx; t++) {
			float acc[16] = {0};
			int64_t i = 0;
			for (; i + 16 <= cols; i += 16) {
				float w[16];
				memcpy(w, rows[r] + 4 * i, sizeof w);
				for (int l = 0; l < 16; l++) acc[l] = mul_add(w[l], x[t][i + l], acc[l]);
			}
			for (int l = 0; i < cols; i++, l++) {
				acc[l] = mul_add(rm_bits_to_float(rm_load32(rows[r] + 4 * i)), x[t][i], acc[l]);
			}
			out[t][off + r] = rm_sum16(acc);
		}
	}
}

static void narrow(const float *src, uint16_t *dst, int64_t n) {
	for (int64_t i = 0; i < n; i++) dst[i] = rm_float_to_float16(src[i]);
}

static void glu(float *mid, const float *g, const float *u, int64_t n, float weight, float clamp) {
	for (int64_t i = 0; i < n; i++) mid[i] = rm_glu(g[i], u[i], weight, clamp);
}

#define ENTRY(name, type, min, bytes) [type] = tile_##name,
const rm_kernels rm_kernels_portable = {
    .quantise = quantise,
    .widen = rm_dequant_row,
    .narrow = narrow,
    .glu = glu,
    .dense = dense,
    .tile = {EACH_TYPE(ENTRY)},
};
