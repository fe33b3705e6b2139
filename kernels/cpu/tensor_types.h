// The tensor types by GGUF number, and scale fields that several files decode.
#ifndef RM_TENSOR_TYPES_H
#define RM_TENSOR_TYPES_H

#include "simd.h"

enum {
	RM_F32 = 0, RM_F16 = 1, RM_Q4_0 = 2, RM_Q4_1 = 3, RM_Q5_0 = 6, RM_Q5_1 = 7, RM_Q8_0 = 8,
	RM_Q2_K = 10, RM_Q3_K = 11, RM_Q4_K = 12, RM_Q5_K = 13, RM_Q6_K = 14,
	RM_IQ2_XXS = 16, RM_IQ2_XS = 17, RM_IQ3_XXS = 18, RM_IQ1_S = 19, RM_IQ4_NL = 20,
	RM_IQ3_S = 21, RM_IQ2_S = 22, RM_IQ4_XS = 23, RM_IQ1_M = 29, RM_BF16 = 30, RM_MXFP4 = 39,
	RM_NVFP4 = 40, RM_TYPES = 41,
};

// Elements and bytes of one block of a type that rm_can_compute.
int rm_block_elements(int32_t type);
int rm_block_bytes(int32_t type);

// rm_mxfp4_scale is 2^(e-128), subnormal for e of 0 and 1.
static inline float rm_mxfp4_scale(uint8_t e) {
	return rm_bits_to_float(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

// rm_iq4xs_scale is the signed scale of group g of an IQ4_XS block.
static inline int rm_iq4xs_scale(const uint8_t *block, int g) {
	int low = block[4 + g / 2] >> (g % 2 * 4) & 15, high = rm_load16(block + 2) >> (2 * g) & 3;
	return (low | high << 4) - 32;
}

// rm_q3k_scale is the 6-bit scale of sub-block k of Q3_K, from its 12 bytes.
static inline int rm_q3k_scale(const uint8_t *s, int k) {
	return (s[k % 8] >> (k / 8 * 4) & 15) | (s[8 + k % 4] >> (2 * (k / 4)) & 3) << 4;
}

// rm_q4k_scale and rm_q4k_min are the 6-bit scale and minimum of sub-block j of
// Q4_K and Q5_K, from their 12 bytes.
static inline int rm_q4k_scale(const uint8_t *s, int j) {
	return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
}

static inline int rm_q4k_min(const uint8_t *s, int j) {
	return j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

#endif
