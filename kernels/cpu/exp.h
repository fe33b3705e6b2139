// The exponential function for one value and for vectors of 8 and 16: the same
// operations in the same order, so the same bits. The vector forms must be used
// inside an RM_BEGIN_AVX2 or RM_BEGIN_AVX512 section; define RM_MATH_256 or
// RM_MATH_512 there before including this header.
//
// exp(x) = 2^n * exp(r), n = round(x/ln 2), r = x - n ln 2 computed in two
// parts, exp(r) by the polynomial of the Cephes library (expf.c) with its
// coefficients for |r| <= ln(2)/2. Below RM_EXP_LOW the result is 0, above
// RM_EXP_HIGH infinity; NaN stays NaN.
#ifndef RM_EXP_H
#define RM_EXP_H

#include <math.h>

#include "simd.h"

#define RM_EXP_LOW -87.33654f
#define RM_EXP_HIGH 88.72283f
#define RM_EXP_LOG2E 1.44269504f
#define RM_EXP_ROUND 12582912.0f // 1.5*2^23: adding it rounds to an integer
#define RM_EXP_ROUND_BITS 0x4b400000u
#define RM_EXP_LN2_HIGH 0.693359375f
#define RM_EXP_LN2_LOW -2.12194440e-4f
#define RM_EXP_C0 1.9875691500e-4f
#define RM_EXP_C1 1.3981999507e-3f
#define RM_EXP_C2 8.3334519073e-3f
#define RM_EXP_C3 4.1665795894e-2f
#define RM_EXP_C4 1.6666665459e-1f
#define RM_EXP_C5 5.0000001201e-1f

static inline float rm_expf_inline(float x) {
	if (x < RM_EXP_LOW) return 0;
	if (x > RM_EXP_HIGH) return INFINITY;
	float t = rm_fma(x, RM_EXP_LOG2E, RM_EXP_ROUND), n = t - RM_EXP_ROUND;
	float r = rm_fma(-n, RM_EXP_LN2_LOW, rm_fma(-n, RM_EXP_LN2_HIGH, x));
	float p = rm_fma(RM_EXP_C0, r, RM_EXP_C1);
	p = rm_fma(p, r, RM_EXP_C2);
	p = rm_fma(p, r, RM_EXP_C3);
	p = rm_fma(p, r, RM_EXP_C4);
	p = rm_fma(p, r, RM_EXP_C5);
	p = rm_fma(p, r * r, r) + 1.0f;
	// 2^n as two factors, because n may be 128. Unsigned, because a NaN may
	// give any bits here.
	uint32_t i = rm_float_to_bits(t) - RM_EXP_ROUND_BITS;
	uint32_t half = i >> 1 | (i & 0x80000000u);
	return p * rm_bits_to_float((half + 127) << 23) * rm_bits_to_float((i - half + 127) << 23);
}

#endif

#if defined(RM_MATH_256) && !defined(RM_MATH_256_DONE)
#define RM_MATH_256_DONE

static inline __m256 rm_exp256(__m256 x) {
	__m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(RM_EXP_LOG2E), _mm256_set1_ps(RM_EXP_ROUND));
	__m256 n = _mm256_sub_ps(t, _mm256_set1_ps(RM_EXP_ROUND));
	__m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(RM_EXP_LN2_HIGH), x);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(RM_EXP_LN2_LOW), r);
	__m256 p = _mm256_fmadd_ps(_mm256_set1_ps(RM_EXP_C0), r, _mm256_set1_ps(RM_EXP_C1));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(RM_EXP_C2));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(RM_EXP_C3));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(RM_EXP_C4));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(RM_EXP_C5));
	p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
	__m256i i = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int)RM_EXP_ROUND_BITS));
	__m256i half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
	p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
	__m256i rest = _mm256_add_epi32(_mm256_sub_epi32(i, half), bias);
	p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(rest, 23)));
	p = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(RM_EXP_LOW), _CMP_LT_OQ), p);
	return _mm256_blendv_ps(p, _mm256_set1_ps(INFINITY), _mm256_cmp_ps(x, _mm256_set1_ps(RM_EXP_HIGH), _CMP_GT_OQ));
}

// rm_silu256 is rm_silu of 8 values.
static inline __m256 rm_silu256(__m256 x) {
	__m256 e = rm_exp256(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
	return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

#endif

#if defined(RM_MATH_512) && !defined(RM_MATH_512_DONE)
#define RM_MATH_512_DONE

static inline __m512 rm_exp512(__m512 x) {
	__m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(RM_EXP_LOG2E), _mm512_set1_ps(RM_EXP_ROUND));
	__m512 n = _mm512_sub_ps(t, _mm512_set1_ps(RM_EXP_ROUND));
	__m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(RM_EXP_LN2_HIGH), x);
	r = _mm512_fnmadd_ps(n, _mm512_set1_ps(RM_EXP_LN2_LOW), r);
	__m512 p = _mm512_fmadd_ps(_mm512_set1_ps(RM_EXP_C0), r, _mm512_set1_ps(RM_EXP_C1));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(RM_EXP_C2));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(RM_EXP_C3));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(RM_EXP_C4));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(RM_EXP_C5));
	p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
	__m512i i = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32((int)RM_EXP_ROUND_BITS));
	__m512i half = _mm512_srai_epi32(i, 1), bias = _mm512_set1_epi32(127);
	p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
	__m512i rest = _mm512_add_epi32(_mm512_sub_epi32(i, half), bias);
	p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(rest, 23)));
	p = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(RM_EXP_LOW), _CMP_NLT_UQ), p);
	return _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, _mm512_set1_ps(RM_EXP_HIGH), _CMP_GT_OQ),
	                          _mm512_set1_ps(INFINITY));
}

#endif
