// Dequantisation of blocks of every type to float32, in plain C. Products are
// rounded after each step in the order of the formulas, so that the values are bit
// for bit those of gguf.Dequantize. Its comments describe the layouts.
#include "cpu.h"
#include "simd.h"
#include "tensor_types.h"
#include "tables.h"

#define BLOCK(name) static void name(const uint8_t *s, float *y)

static inline float half_at(const uint8_t *p) { return rm_float16_to_float(rm_load16(p)); }

BLOCK(f32) { *y = rm_bits_to_float(rm_load32(s)); }
BLOCK(f16) { *y = half_at(s); }
BLOCK(bf16) { *y = rm_bf16_to_float(rm_load16(s)); }

BLOCK(q8_0) {
	float d = half_at(s);
	for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)s[2 + i];
}

BLOCK(q4_0) {
	float d = half_at(s);
	for (int i = 0; i < 16; i++) {
		y[i] = d * (float)((s[2 + i] & 15) - 8);
		y[16 + i] = d * (float)((s[2 + i] >> 4) - 8);
	}
}

BLOCK(q4_1) {
	float d = half_at(s), m = half_at(s + 2);
	for (int i = 0; i < 16; i++) {
		y[i] = d * (float)(s[4 + i] & 15) + m;
		y[16 + i] = d * (float)(s[4 + i] >> 4) + m;
	}
}

// q5 is element i of the five-bit types: h holds the high bits, q the low
// nibbles.
static inline int q5(uint32_t h, const uint8_t *q, int i) {
	int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
	return low | (int)(h >> i & 1) << 4;
}

BLOCK(q5_0) {
	float d = half_at(s);
	uint32_t h = rm_load32(s + 2);
	for (int i = 0; i < 32; i++) y[i] = d * (float)(q5(h, s + 6, i) - 16);
}

BLOCK(q5_1) {
	float d = half_at(s), m = half_at(s + 2);
	uint32_t h = rm_load32(s + 4);
	for (int i = 0; i < 32; i++) y[i] = d * (float)q5(h, s + 8, i) + m;
}

// table16 handles the common form of MXFP4 and the IQ4 types.
static inline void table16(const int8_t *table, float d, const uint8_t *q, float *y) {
	for (int i = 0; i < 16; i++) {
		y[i] = d * (float)table[q[i] & 15];
		y[16 + i] = d * (float)table[q[i] >> 4];
	}
}

BLOCK(mxfp4) { table16(rm_mxfp4_values, rm_mxfp4_scale(s[0]), s + 1, y); }

BLOCK(nvfp4) {
	for (int k = 0; k < 4; k++, y += 16) {
		float d = rm_nvfp4_scales[s[k]];
		for (int i = 0; i < 8; i++) {
			int q = s[4 + 8 * k + i];
			y[i] = d * (float)rm_mxfp4_values[q & 15];
			y[8 + i] = d * (float)rm_mxfp4_values[q >> 4];
		}
	}
}

BLOCK(iq4nl) { table16(rm_iq4nl_values, half_at(s), s + 2, y); }

BLOCK(iq4xs) {
	float d = half_at(s);
	for (int g = 0; g < 8; g++) table16(rm_iq4nl_values, d * (float)rm_iq4xs_scale(s, g), s + 8 + 16 * g, y + 32 * g);
}

BLOCK(q2k) {
	float d = half_at(s + 80), dmin = half_at(s + 82);
	for (int i = 0; i < 256; i++) {
		int q = s[16 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
		int sc = s[i / 16];
		float scale = d * (float)(sc & 15), least = dmin * (float)(sc >> 4);
		y[i] = scale * (float)q - least;
	}
}

BLOCK(q3k) {
	float d = half_at(s + 108);
	for (int i = 0; i < 256; i++) {
		int q = s[32 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
		if (!(s[i % 32] >> (i / 32) & 1)) q -= 4;
		y[i] = d * (float)(rm_q3k_scale(s + 96, i / 16) - 32) * (float)q;
	}
}

BLOCK(q4k) {
	float d = half_at(s), dmin = half_at(s + 2);
	for (int i = 0; i < 256; i++) {
		int j = i / 32, q = s[16 + 32 * (j / 2) + i % 32] >> (j % 2 * 4) & 15;
		float scale = d * (float)rm_q4k_scale(s + 4, j), least = dmin * (float)rm_q4k_min(s + 4, j);
		y[i] = scale * (float)q - least;
	}
}

BLOCK(q5k) {
	float d = half_at(s), dmin = half_at(s + 2);
	for (int i = 0; i < 256; i++) {
		int j = i / 32, q = s[48 + 32 * (j / 2) + i % 32] >> (j % 2 * 4) & 15;
		q |= (s[16 + i % 32] >> j & 1) << 4;
		float scale = d * (float)rm_q4k_scale(s + 4, j), least = dmin * (float)rm_q4k_min(s + 4, j);
		y[i] = scale * (float)q - least;
	}
}

BLOCK(q6k) {
	float d = half_at(s + 208);
	for (int i = 0; i < 256; i++) {
		int h = i / 128, r = i / 32 % 4, l = i % 32;
		int q = s[64 * h + 32 * (r % 2) + l] >> (r / 2 * 4) & 15;
		q |= (s[128 + 32 * h + l] >> (2 * r) & 3) << 4;
		y[i] = d * (float)(int8_t)s[192 + i / 16] * (float)(q - 32);
	}
}

// points writes n scaled magnitudes of a grid entry, negated where the mask has
// a bit set (from bit `first` on).
static inline void points(float *y, float scale, uint64_t entry, int n, unsigned mask, int first) {
	for (int j = 0; j < n; j++) {
		float v = scale * (float)(entry >> (8 * j) & 255);
		y[j] = mask >> (first + j) & 1 ? -v : v;
	}
}

BLOCK(iq2xxs) {
	float d = half_at(s);
	for (int g = 0; g < 8; g++) {
		const uint8_t *index = s + 2 + 8 * g;
		uint32_t word = rm_load32(index + 4);
		float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
		for (int k = 0; k < 4; k++) {
			points(y + 32 * g + 8 * k, scale, rm_iq2xxs_grid[index[k]], 8, rm_sign_masks[word >> (7 * k) & 127], 0);
		}
	}
}

// nibble_scale is the scale of IQ2_XS and IQ2_S for the 4-bit scale number k.
static inline float nibble_scale(const uint8_t *scales, int k) { return (float)(scales[k / 2] >> (k % 2 * 4) & 15); }

BLOCK(iq2xs) {
	float d = half_at(s);
	for (int k = 0; k < 32; k++) {
		unsigned q = rm_load16(s + 2 + 2 * k);
		float scale = d * (0.5f + nibble_scale(s + 66, k / 2)) * 0.25f;
		points(y + 8 * k, scale, rm_iq2xs_grid[q & 511], 8, rm_sign_masks[q >> 9], 0);
	}
}

BLOCK(iq2s) {
	float d = half_at(s);
	for (int k = 0; k < 32; k++) {
		int index = s[2 + k] | (s[66 + k / 4] >> (k % 4 * 2) & 3) << 8;
		float scale = d * (0.5f + nibble_scale(s + 74, k / 2)) * 0.25f;
		points(y + 8 * k, scale, rm_iq2s_grid[index], 8, s[34 + k], 0);
	}
}

BLOCK(iq3xxs) {
	float d = half_at(s);
	for (int k = 0; k < 64; k++) {
		uint32_t word = rm_load32(s + 66 + 4 * (k / 8));
		float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
		points(y + 4 * k, scale, rm_iq3xxs_grid[s[2 + k]], 4, rm_sign_masks[word >> (7 * (k / 2 % 4)) & 127], k % 2 * 4);
	}
}

BLOCK(iq3s) {
	float d = half_at(s);
	for (int k = 0; k < 64; k++) {
		int index = s[2 + k] | (s[66 + k / 8] >> (k % 8) & 1) << 8;
		float scale = d * (1 + 2 * nibble_scale(s + 106, k / 8));
		points(y + 4 * k, scale, rm_iq3s_grid[index], 4, s[74 + k / 2], k % 2 * 4);
	}
}

// ternary writes 8 elements of the IQ1 types.
static inline void ternary(float *y, float scale, int negative, uint64_t entry) {
	float delta = negative ? -0.125f : 0.125f;
	for (int j = 0; j < 8; j++) y[j] = scale * ((float)(int8_t)(uint8_t)(entry >> (8 * j)) + delta);
}

BLOCK(iq1s) {
	float d = half_at(s);
	for (int k = 0; k < 32; k++) {
		unsigned high = rm_load16(s + 34 + 2 * (k / 4));
		unsigned index = s[2 + k] | (high >> (3 * (k % 4)) & 7) << 8;
		ternary(y + 8 * k, d * (float)(1 + 2 * (high >> 12 & 7)), (int)(high >> 15), rm_iq1s_grid[index]);
	}
}

BLOCK(iq1m) {
	unsigned bits = 0;
	for (int i = 0; i < 4; i++) bits |= (unsigned)(rm_load16(s + 48 + 2 * i) >> 12) << (4 * i);
	float d = rm_float16_to_float((uint16_t)bits);
	for (int k = 0; k < 32; k++) {
		unsigned nibble = s[32 + k / 2] >> (k % 2 * 4) & 15;
		unsigned sc = rm_load16(s + 48 + 2 * (k / 8)) >> (k / 2 % 4 * 3) & 7;
		unsigned index = s[k] | (nibble & 7) << 8;
		ternary(y + 8 * k, d * (float)(1 + 2 * sc), (int)(nibble >> 3), rm_iq1s_grid[index]);
	}
}

typedef struct {
	int elements, bytes;
	void (*decode)(const uint8_t *, float *);
} format;

static const format formats[] = {
	[RM_F32] = {1, 4, f32},
	[RM_F16] = {1, 2, f16},
	[RM_BF16] = {1, 2, bf16},
	[RM_Q4_0] = {32, 18, q4_0},
	[RM_Q4_1] = {32, 20, q4_1},
	[RM_Q5_0] = {32, 22, q5_0},
	[RM_Q5_1] = {32, 24, q5_1},
	[RM_Q8_0] = {32, 34, q8_0},
	[RM_Q2_K] = {256, 84, q2k},
	[RM_Q3_K] = {256, 110, q3k},
	[RM_Q4_K] = {256, 144, q4k},
	[RM_Q5_K] = {256, 176, q5k},
	[RM_Q6_K] = {256, 210, q6k},
	[RM_IQ2_XXS] = {256, 66, iq2xxs},
	[RM_IQ2_XS] = {256, 74, iq2xs},
	[RM_IQ3_XXS] = {256, 98, iq3xxs},
	[RM_IQ1_S] = {256, 50, iq1s},
	[RM_IQ4_NL] = {32, 18, iq4nl},
	[RM_IQ3_S] = {256, 110, iq3s},
	[RM_IQ2_S] = {256, 82, iq2s},
	[RM_IQ4_XS] = {256, 136, iq4xs},
	[RM_IQ1_M] = {256, 56, iq1m},
	[RM_MXFP4] = {32, 17, mxfp4},
	[RM_NVFP4] = {64, 36, nvfp4},
};

int rm_can_compute(int32_t type) {
	return type >= 0 && (size_t)type < sizeof formats / sizeof *formats && formats[type].decode != NULL;
}

int rm_block_elements(int32_t type) { return formats[type].elements; }
int rm_block_bytes(int32_t type) { return formats[type].bytes; }

void rm_dequant_row(int32_t type, const uint8_t *src, float *dst, int64_t n) {
	const format *f = &formats[type];
	for (int64_t i = 0; i < n; i += f->elements, src += f->bytes) f->decode(src, dst + i);
}
