// Unpacking of 256 weights of every quantised type to signed bytes on 128-bit
// NEON vectors. Included by matmul_neon.c and matmul_neon_i8mm.c inside their
// target section.
//
// All weights fit in signed bytes (Q4_K, Q5_K and Q2_K are at most 31), so the
// signed dot product instructions serve every type.

#define INLINE static inline __attribute__((always_inline))

// super is 256 weights of a row unpacked: 8 groups of 32.
typedef struct {
	int8x16_t q[16];                // two vectors for each group
	int32x4_t k[4];                 // integer scales of the 16 halves of groups, KIND_K
	float32x4_t s[2], m0[2], m1[2]; // float scales and negated minima by group
} super;

// KIND_K has an integer scale per 16 weights.
enum { KIND_S, KIND_K };

enum { MIN_NONE, MIN_32, MIN_16 };

// unpack_fn reads n <= 8 groups (always 8 for types with blocks of 256). Groups
// from n on become zero.
typedef void (*unpack_fn)(const uint8_t *w, int n, super *u);

INLINE float32x4_t half4(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
INLINE float half1(const uint8_t *p) { return vgetq_lane_f32(half4(vdup_n_u16(rm_load16(p))), 0); }
INLINE int8x16_t as_s8(uint8x16_t v) { return vreinterpretq_s8_u8(v); }

// halves8 converts 8 float16 that are `stride` bytes apart; from n on the
// result is zero.
INLINE void halves8(const uint8_t *p, int stride, int n, float32x4_t out[2]) {
	uint16_t h[8];
	for (int i = 0; i < 8; i++) h[i] = i < n ? rm_load16(p + i * stride) : 0;
	out[0] = half4(vld1_u16(h));
	out[1] = half4(vld1_u16(h + 4));
}

// bytes_to_floats converts the low or high eight unsigned bytes to 8 floats.
INLINE void bytes_to_floats(uint8x8_t bytes, float32x4_t out[2]) {
	uint16x8_t wide = vmovl_u8(bytes);
	out[0] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
	out[1] = vcvtq_f32_u32(vmovl_u16(vget_high_u16(wide)));
}

// scale_bytes is out = factor * bytes.
INLINE void scale_bytes(uint8x8_t bytes, float factor, float32x4_t out[2]) {
	bytes_to_floats(bytes, out);
	out[0] = vmulq_n_f32(out[0], factor);
	out[1] = vmulq_n_f32(out[1], factor);
}

// negated is scale_bytes with the sign of each product flipped.
INLINE void negated(uint8x8_t bytes, float factor, float32x4_t out[2]) {
	scale_bytes(bytes, factor, out);
	out[0] = vnegq_f32(out[0]);
	out[1] = vnegq_f32(out[1]);
}

INLINE void all_scales(float d, super *u) { u->s[0] = u->s[1] = vdupq_n_f32(d); }

// integer_scales fills k from 16 signed bytes.
INLINE void integer_scales(int8x16_t sc, super *u) {
	int16x8_t low = vmovl_s8(vget_low_s8(sc)), high = vmovl_s8(vget_high_s8(sc));
	u->k[0] = vmovl_s16(vget_low_s16(low));
	u->k[1] = vmovl_s16(vget_high_s16(low));
	u->k[2] = vmovl_s16(vget_low_s16(high));
	u->k[3] = vmovl_s16(vget_high_s16(high));
}

#define FOR_GROUPS(i, n) \
	for (int i = 0; i < 8; i++) \
		if (i >= n) { \
			u->q[2 * i] = u->q[2 * i + 1] = vdupq_n_s8(0); \
		} else

INLINE void unpack_q8_0(const uint8_t *w, int n, super *u) {
	halves8(w, 34, n, u->s);
	FOR_GROUPS(i, n) {
		u->q[2 * i] = as_s8(vld1q_u8(w + 34 * i + 2));
		u->q[2 * i + 1] = as_s8(vld1q_u8(w + 34 * i + 18));
	}
}

// nibbles spreads 16 bytes: low nibbles to the first vector, high ones to the
// second.
INLINE void nibbles(const uint8_t *p, uint8x16_t out[2]) {
	uint8x16_t v = vld1q_u8(p);
	out[0] = vandq_u8(v, vdupq_n_u8(15));
	out[1] = vshrq_n_u8(v, 4);
}

INLINE void unpack_q4_0(const uint8_t *w, int n, super *u) {
	halves8(w, 18, n, u->s);
	FOR_GROUPS(i, n) {
		uint8x16_t v[2];
		nibbles(w + 18 * i + 2, v);
		u->q[2 * i] = vsubq_s8(as_s8(v[0]), vdupq_n_s8(8));
		u->q[2 * i + 1] = vsubq_s8(as_s8(v[1]), vdupq_n_s8(8));
	}
}

INLINE void unpack_q4_1(const uint8_t *w, int n, super *u) {
	halves8(w, 20, n, u->s);
	halves8(w + 2, 20, n, u->m0);
	FOR_GROUPS(i, n) {
		uint8x16_t v[2];
		nibbles(w + 20 * i + 4, v);
		u->q[2 * i] = as_s8(v[0]);
		u->q[2 * i + 1] = as_s8(v[1]);
	}
}

// five is a group of 32 five-bit values: nibbles at q, fifth bits in high.
INLINE void five(uint32_t high, const uint8_t *q, uint8x16_t out[2]) {
	uint8x16_t select = vreinterpretq_u8_u64(vdupq_n_u64(UINT64_C(0x8040201008040201)));
	uint8x16_t spread = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1)), bytes = vreinterpretq_u8_u32(vdupq_n_u32(high));
	uint8x16_t low = vtstq_u8(vqtbl1q_u8(bytes, spread), select);
	uint8x16_t up = vtstq_u8(vqtbl1q_u8(bytes, vaddq_u8(spread, vdupq_n_u8(2))), select);
	nibbles(q, out);
	out[0] = vorrq_u8(out[0], vandq_u8(low, vdupq_n_u8(16)));
	out[1] = vorrq_u8(out[1], vandq_u8(up, vdupq_n_u8(16)));
}

INLINE void unpack_q5_0(const uint8_t *w, int n, super *u) {
	halves8(w, 22, n, u->s);
	FOR_GROUPS(i, n) {
		uint8x16_t v[2];
		five(rm_load32(w + 22 * i + 2), w + 22 * i + 6, v);
		u->q[2 * i] = vsubq_s8(as_s8(v[0]), vdupq_n_s8(16));
		u->q[2 * i + 1] = vsubq_s8(as_s8(v[1]), vdupq_n_s8(16));
	}
}

INLINE void unpack_q5_1(const uint8_t *w, int n, super *u) {
	halves8(w, 24, n, u->s);
	halves8(w + 2, 24, n, u->m0);
	FOR_GROUPS(i, n) {
		uint8x16_t v[2];
		five(rm_load32(w + 24 * i + 4), w + 24 * i + 8, v);
		u->q[2 * i] = as_s8(v[0]);
		u->q[2 * i + 1] = as_s8(v[1]);
	}
}

// looked_up is a group of 32 nibbles that are indices into a table.
INLINE void looked_up(int8x16_t table, const uint8_t *p, int8x16_t *q) {
	uint8x16_t v[2];
	nibbles(p, v);
	q[0] = vqtbl1q_s8(table, v[0]);
	q[1] = vqtbl1q_s8(table, v[1]);
}

INLINE void unpack_iq4_nl(const uint8_t *w, int n, super *u) {
	int8x16_t table = vld1q_s8(rm_iq4nl_values);
	halves8(w, 18, n, u->s);
	FOR_GROUPS(i, n) looked_up(table, w + 18 * i + 2, u->q + 2 * i);
}

INLINE void unpack_mxfp4(const uint8_t *w, int n, super *u) {
	int8x16_t table = vld1q_s8(rm_mxfp4_values);
	FOR_GROUPS(i, n) looked_up(table, w + 17 * i + 1, u->q + 2 * i);
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++) bytes |= (uint64_t)w[17 * i] << (8 * i);
	uint16x8_t wide = vmovl_u8(vcreate_u8(bytes));
	for (int h = 0; h < 2; h++) { // rm_mxfp4_scale
		uint32x4_t e = vmovl_u16(h ? vget_high_u16(wide) : vget_low_u16(wide));
		uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
		uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
		u->s[h] = vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
	}
}

// scale_min_k fills s and m0 of Q4_K and Q5_K from d, dmin and the 12 bytes
// after them.
INLINE void scale_min_k(const uint8_t *w, super *u) {
	uint32_t a = rm_load32(w + 4), b = rm_load32(w + 8), c = rm_load32(w + 12);
	uint32_t sc_high = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
	uint32_t min_high = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
	scale_bytes(vcreate_u8((uint64_t)sc_high << 32 | (a & 0x3f3f3f3f)), half1(w), u->s);
	negated(vcreate_u8((uint64_t)min_high << 32 | (b & 0x3f3f3f3f)), half1(w + 2), u->m0);
}

INLINE void unpack_q4_k(const uint8_t *w, int n, super *u) {
	(void)n;
	scale_min_k(w, u);
	for (int j = 0; j < 4; j++) {
		for (int h = 0; h < 2; h++) {
			uint8x16_t v[2];
			nibbles(w + 16 + 32 * j + 16 * h, v);
			u->q[4 * j + h] = as_s8(v[0]);
			u->q[4 * j + 2 + h] = as_s8(v[1]);
		}
	}
}

INLINE void unpack_q5_k(const uint8_t *w, int n, super *u) {
	(void)n;
	scale_min_k(w, u);
	for (int h = 0; h < 2; h++) {
		uint8x16_t high = vld1q_u8(w + 16 + 16 * h), sixteen = vdupq_n_u8(16);
		for (int j = 0; j < 4; j++) {
			uint8x16_t v[2];
			nibbles(w + 48 + 32 * j + 16 * h, v);
			// bit 2j, then bit 2j+1, to bit 4
			uint8x16_t h0 = vandq_u8(vshlq_u8(high, vdupq_n_s8((int8_t)(4 - 2 * j))), sixteen);
			uint8x16_t h1 = vandq_u8(vshlq_u8(high, vdupq_n_s8((int8_t)(3 - 2 * j))), sixteen);
			u->q[4 * j + h] = as_s8(vorrq_u8(v[0], h0));
			u->q[4 * j + 2 + h] = as_s8(vorrq_u8(v[1], h1));
		}
	}
}

// crumbs is the j-th of the four two-bit values in each byte.
INLINE uint8x16_t crumbs(uint8x16_t v, int j) {
	return vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)(-2 * j))), vdupq_n_u8(3));
}

INLINE void unpack_q2_k(const uint8_t *w, int n, super *u) {
	(void)n;
	uint8x16_t sc = vld1q_u8(w), least = vshrq_n_u8(sc, 4);
	integer_scales(as_s8(vandq_u8(sc, vdupq_n_u8(15))), u);
	all_scales(half1(w + 80), u);
	float dmin = half1(w + 82);
	negated(vget_low_u8(vuzp1q_u8(least, least)), dmin, u->m0);
	negated(vget_low_u8(vuzp2q_u8(least, least)), dmin, u->m1);
	for (int i = 0; i < 4; i++) {
		uint8x16_t v = vld1q_u8(w + 16 + 16 * i);
		for (int j = 0; j < 4; j++) u->q[8 * (i / 2) + 2 * j + i % 2] = as_s8(crumbs(v, j));
	}
}

INLINE void unpack_q3_k(const uint8_t *w, int n, super *u) {
	(void)n;
	// rm_q3k_scale of all 16: low nibbles, then high ones, and two bits above
	uint8x8_t low = vld1_u8(w + 96);
	uint8x16_t sc = vcombine_u8(vand_u8(low, vdup_n_u8(15)), vshr_n_u8(low, 4));
	static const int8_t down[16] = {0, 0, 0, 0, -2, -2, -2, -2, -4, -4, -4, -4, -6, -6, -6, -6};
	uint8x16_t high = vshlq_u8(vreinterpretq_u8_u32(vdupq_n_u32(rm_load32(w + 104))), vld1q_s8(down));
	high = vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4);
	integer_scales(vsubq_s8(as_s8(vorrq_u8(sc, high)), vdupq_n_s8(32)), u);
	all_scales(half1(w + 108), u);
	for (int i = 0; i < 4; i++) {
		uint8x16_t v = vld1q_u8(w + 32 + 16 * i), mask = vld1q_u8(w + 16 * (i % 2));
		for (int j = 0; j < 4; j++) {
			int g = 4 * (i / 2) + j;
			uint8x16_t set = vtstq_u8(mask, vdupq_n_u8((uint8_t)(1 << g)));
			uint8x16_t off = vbicq_u8(vdupq_n_u8(4), set); // 4 where the bit is clear
			u->q[2 * g + i % 2] = as_s8(vsubq_u8(crumbs(v, j), off));
		}
	}
}

INLINE void unpack_q6_k(const uint8_t *w, int n, super *u) {
	(void)n;
	integer_scales(as_s8(vld1q_u8(w + 192)), u);
	all_scales(half1(w + 208), u);
	for (int i = 0; i < 4; i++) {
		int h = i / 2, c = i % 2;
		uint8x16_t a[2], b[2], v = vld1q_u8(w + 128 + 32 * h + 16 * c);
		nibbles(w + 64 * h + 16 * c, a);
		nibbles(w + 64 * h + 32 + 16 * c, b);
		uint8x16_t low[4] = {a[0], b[0], a[1], b[1]};
		for (int j = 0; j < 4; j++) {
			uint8x16_t q = vorrq_u8(low[j], vshlq_n_u8(crumbs(v, j), 4));
			u->q[8 * h + 2 * j + c] = vsubq_s8(as_s8(q), vdupq_n_s8(32));
		}
	}
}

INLINE void unpack_iq2_xxs(const uint8_t *w, int n, super *u) {
	(void)n;
	uint32_t word[8];
	for (int g = 0; g < 8; g++) {
		const uint8_t *i = w + 2 + 8 * g;
		uint32_t v = word[g] = rm_load32(i + 4);
		for (int h = 0; h < 2; h++, v >>= 14) {
			uint64x2_t grid = vcombine_u64(vcreate_u64(rm_iq2xxs_grid[i[2 * h]]), vcreate_u64(rm_iq2xxs_grid[i[2 * h + 1]]));
			uint64x2_t sign = vcombine_u64(vcreate_u64(rm_sign_bytes[v & 127]), vcreate_u64(rm_sign_bytes[v >> 7 & 127]));
			u->q[2 * g + h] = vmulq_s8(vreinterpretq_s8_u64(grid), vreinterpretq_s8_u64(sign));
		}
	}
	float d = half1(w);
	for (int h = 0; h < 2; h++) {
		float32x4_t sc = vcvtq_f32_u32(vshrq_n_u32(vld1q_u32(word + 4 * h), 28));
		u->s[h] = vmulq_n_f32(vmulq_n_f32(vaddq_f32(sc, vdupq_n_f32(0.5f)), d), 0.25f);
	}
}

INLINE void unpack_iq4_xs(const uint8_t *w, int n, super *u) {
	(void)n;
	int8x16_t table = vld1q_s8(rm_iq4nl_values);
	for (int g = 0; g < 8; g++) looked_up(table, w + 8 + 16 * g, u->q + 2 * g);
	float d = half1(w);
	static const int32_t by4[8] = {0, -4, -8, -12, -16, -20, -24, -28}, by2[8] = {0, -2, -4, -6, -8, -10, -12, -14};
	uint32x4_t low = vdupq_n_u32(rm_load32(w + 4)), high = vdupq_n_u32(rm_load16(w + 2));
	for (int h = 0; h < 2; h++) { // rm_iq4xs_scale
		uint32x4_t a = vandq_u32(vshlq_u32(low, vld1q_s32(by4 + 4 * h)), vdupq_n_u32(15));
		uint32x4_t b = vandq_u32(vshlq_u32(high, vld1q_s32(by2 + 4 * h)), vdupq_n_u32(3));
		int32x4_t sc = vsubq_s32(vreinterpretq_s32_u32(vorrq_u32(a, vshlq_n_u32(b, 4))), vdupq_n_s32(32));
		u->s[h] = vmulq_n_f32(vcvtq_f32_s32(sc), d);
	}
}

// EACH_TYPE lists the types: name, number, kind, minima, bytes of 256 columns.
#define EACH_TYPE(F) \
	F(q8_0, RM_Q8_0, KIND_S, MIN_NONE, 272) \
	F(q4_0, RM_Q4_0, KIND_S, MIN_NONE, 144) \
	F(q4_1, RM_Q4_1, KIND_S, MIN_32, 160) \
	F(q5_0, RM_Q5_0, KIND_S, MIN_NONE, 176) \
	F(q5_1, RM_Q5_1, KIND_S, MIN_32, 192) \
	F(iq4_nl, RM_IQ4_NL, KIND_S, MIN_NONE, 144) \
	F(mxfp4, RM_MXFP4, KIND_S, MIN_NONE, 136) \
	F(q2_k, RM_Q2_K, KIND_K, MIN_16, 84) \
	F(q3_k, RM_Q3_K, KIND_K, MIN_NONE, 110) \
	F(q4_k, RM_Q4_K, KIND_S, MIN_32, 144) \
	F(q5_k, RM_Q5_K, KIND_S, MIN_32, 176) \
	F(q6_k, RM_Q6_K, KIND_K, MIN_NONE, 210) \
	F(iq2_xxs, RM_IQ2_XXS, KIND_S, MIN_NONE, 66) \
	F(iq4_xs, RM_IQ4_XS, KIND_S, MIN_NONE, 136)

// What matmul_neon_i8mm.c provides for the table in matmul_neon.c.
#define DECLARE_I8MM(name, type, kind, min, bytes) void rm_i8mm_##name(const rm_tile *t);
void rm_i8mm_gather(const void *const *x, int64_t n, int64_t cols, uint8_t *batch);
