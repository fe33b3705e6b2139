// rm_expf of four values on NEON: the operations of rm_expf_inline in the same
// order, so the same bits. Included inside a target section.
#ifndef RM_EXP_NEON_H
#define RM_EXP_NEON_H

#include "exp.h"

static inline float32x4_t rm_exp_neon(float32x4_t x) {
	float32x4_t round = vdupq_n_f32(RM_EXP_ROUND);
	float32x4_t t = vfmaq_f32(round, x, vdupq_n_f32(RM_EXP_LOG2E)), n = vsubq_f32(t, round);
	float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(RM_EXP_LN2_HIGH));
	r = vfmsq_f32(r, n, vdupq_n_f32(RM_EXP_LN2_LOW));
	float32x4_t p = vfmaq_f32(vdupq_n_f32(RM_EXP_C1), vdupq_n_f32(RM_EXP_C0), r);
	p = vfmaq_f32(vdupq_n_f32(RM_EXP_C2), p, r);
	p = vfmaq_f32(vdupq_n_f32(RM_EXP_C3), p, r);
	p = vfmaq_f32(vdupq_n_f32(RM_EXP_C4), p, r);
	p = vfmaq_f32(vdupq_n_f32(RM_EXP_C5), p, r);
	p = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), vdupq_n_f32(1));
	int32x4_t i = vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32((int32_t)RM_EXP_ROUND_BITS));
	int32x4_t half = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
	p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
	p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(i, half), bias), 23)));
	p = vbslq_f32(vcltq_f32(x, vdupq_n_f32(RM_EXP_LOW)), vdupq_n_f32(0), p);
	return vbslq_f32(vcgtq_f32(x, vdupq_n_f32(RM_EXP_HIGH)), vdupq_n_f32(INFINITY), p);
}

#endif
