// A vector of 4 floats. See ops_kernels.inc.h for what the names mean.
typedef float32x4_t vec;
#define VW 4
#define VTILE 4 // rows of a register tile that holds VTILE*4 accumulators
#define VINLINE static inline __attribute__((always_inline))

VINLINE vec v_set(float x) { return vdupq_n_f32(x); }
VINLINE vec v_load(const float *p) { return vld1q_f32(p); }
VINLINE void v_store(float *p, vec x) { vst1q_f32(p, x); }
VINLINE vec v_load_n(const float *p, int64_t n) {
	float x[VW] = {0};
	memcpy(x, p, (size_t)n * 4);
	return v_load(x);
}
VINLINE void v_store_n(float *p, vec x, int64_t n) {
	float all[VW];
	v_store(all, x);
	memcpy(p, all, (size_t)n * 4);
}
VINLINE uint16x4_t v_words_n(const uint16_t *p, int64_t n) {
	uint16_t w[VW] = {0};
	memcpy(w, p, (size_t)n * 2);
	return vld1_u16(w);
}
VINLINE vec v_from_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
VINLINE vec v_load_f16(const uint16_t *p) { return v_from_f16(vld1_u16(p)); }
VINLINE vec v_load_f16_n(const uint16_t *p, int64_t n) { return v_from_f16(v_words_n(p, n)); }
VINLINE uint16x4_t v_to_f16(vec x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
VINLINE void v_store_f16(uint16_t *p, vec x) { vst1_u16(p, v_to_f16(x)); }
VINLINE void v_store_f16_n(uint16_t *p, vec x, int64_t n) {
	uint16_t w[VW];
	v_store_f16(w, x);
	memcpy(p, w, (size_t)n * 2);
}
VINLINE vec v_abs(vec x) { return vabsq_f32(x); }
VINLINE vec v_round_f16(vec x) {
	return vbslq_f32(vcgeq_f32(v_abs(x), v_set(RM_FLOAT16_END)), x, v_from_f16(v_to_f16(x)));
}
typedef int32x4_t v_ints;
VINLINE v_ints v_fixed(vec x) { return vcvtq_s32_f32(vmulq_f32(x, v_set(0x1p24f))); }
VINLINE v_ints v_fixed_add(v_ints a, v_ints b) { return vaddq_s32(a, b); }
VINLINE void v_fixed_store(int32_t *p, v_ints x) { vst1q_s32(p, x); }
VINLINE vec v_widen(uint16x4_t h) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(h), 16)); }
VINLINE vec v_load_bf16(const uint16_t *p) { return v_widen(vld1_u16(p)); }
VINLINE vec v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen(v_words_n(p, n)); }
VINLINE vec v_add(vec a, vec b) { return vaddq_f32(a, b); }
VINLINE vec v_sub(vec a, vec b) { return vsubq_f32(a, b); }
VINLINE vec v_mul(vec a, vec b) { return vmulq_f32(a, b); }
VINLINE vec v_div(vec a, vec b) { return vdivq_f32(a, b); }
VINLINE vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
VINLINE vec v_min(vec bound, vec x) { return vbslq_f32(vcltq_f32(bound, x), bound, x); }
VINLINE vec v_max(vec bound, vec x) { return vbslq_f32(vcgtq_f32(bound, x), bound, x); }
VINLINE vec v_exp(vec x) { return rm_exp_neon(x); }
VINLINE float v_sum(vec x) {
	float32x2_t h = vadd_f32(vget_low_f32(x), vget_high_f32(x));
	return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
VINLINE void v_sums(float *out, int64_t ld, vec a[VTILE][4], float factor) {
	for (int h = 0; h < VTILE; h++) {
		for (int k = 0; k < 4; k++) out[h * ld + k] = factor * v_sum(a[h][k]);
	}
}
