// Sums of 16-bit types with float32 partial sums. The rules are those of package
// reduce: added in float32 in the given order, rounded once to nearest even, a
// NaN result is the canonical NaN.
#include <string.h>

#include "rm_engine.h"

enum { PIECE = 256 };

static inline float from_bits(uint32_t u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static inline uint32_t to_bits(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static inline float from_float16(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
	// The multiplication corrects the exponent's bias, for subnormal numbers
	// too.
	uint32_t finite = to_bits(from_bits(rest) * 0x1p112f);
	return from_bits(sign | ((h & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : finite));
}

static inline uint16_t to_float16(float f) {
	uint32_t u = to_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
	if (a > 0x7f800000) {
		return 0x7e00;
	}
	if (a >= 0x477ff000) { // rounds to more than 65504
		return (uint16_t)(sign | 0x7c00);
	}
	if (a < 0x38800000) { // subnormal: the addition rounds at the right place
		return (uint16_t)(sign | (to_bits(from_bits(a) + 0.5f) - 0x3f000000));
	}
	return (uint16_t)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
}

static inline uint16_t to_bfloat16(float f) {
	uint32_t u = to_bits(f);
	if ((u & 0x7fffffff) > 0x7f800000) {
		return 0x7fc0;
	}
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void rme_sum_wide(int how, int out_wide, uint8_t *out, int64_t n, int k, const uint8_t *const *blocks,
                 const uint8_t *wide) {
	float acc[PIECE], in[PIECE];
	uint16_t narrow[PIECE];
	for (int64_t i = 0; i < n; i += PIECE) {
		int m = n - i < PIECE ? (int)(n - i) : PIECE;
		for (int b = 0; b < k; b++) {
			float *to = b == 0 ? acc : in;
			if (wide[b]) {
				memcpy(to, blocks[b] + 4 * i, (size_t)m * 4);
			} else {
				memcpy(narrow, blocks[b] + 2 * i, (size_t)m * 2);
				if (how == RME_FLOAT16) {
					for (int x = 0; x < m; x++) to[x] = from_float16(narrow[x]);
				} else {
					for (int x = 0; x < m; x++) to[x] = from_bits((uint32_t)narrow[x] << 16);
				}
			}
			if (b > 0) {
				for (int x = 0; x < m; x++) acc[x] += in[x];
			}
		}
		if (out_wide) {
			memcpy(out + 4 * i, acc, (size_t)m * 4);
			continue;
		}
		if (how == RME_FLOAT16) {
			for (int x = 0; x < m; x++) narrow[x] = to_float16(acc[x]);
		} else {
			for (int x = 0; x < m; x++) narrow[x] = to_bfloat16(acc[x]);
		}
		memcpy(out + 2 * i, narrow, (size_t)m * 2);
	}
}
