#include "rm_lanes.h"

#include <string.h>

// The functions are written once, in C that compilers turn into vector instructions, and
// compiled for each level.

#define MASK ((1 << RM_LANES_BITS) - 1)
#define NOT_A_NUMBER INT64_MIN
#define INLINE static inline __attribute__((always_inline))

INLINE int64_t block_length(int64_t rest) { return rest < RM_LANES_BLOCK ? rest : RM_LANES_BLOCK; }

INLINE void measure(uint8_t *limits, const int64_t *x, int64_t n) {
	uint64_t size = 0, any = 0;
	for (int64_t i = 0; i < n; i++) {
		size |= (uint64_t)x[i] ^ -(uint64_t)(x[i] < 0);
		any |= (uint64_t)x[i];
	}
	limits[0] = any ? (uint8_t)(size ? 65 - __builtin_clzll(size) : 1) : 0;
	limits[1] = any ? (uint8_t)(64 - __builtin_ctzll(any)) : 0;
}

INLINE int32_t *encode(int32_t *restrict dst, int lanes, int shift, const int64_t *restrict x, int64_t n) {
	if (lanes == 1) {
		if (shift <= 32) { // the lower half is the same as of an arithmetic shift
			for (int64_t i = 0; i < n; i++) dst[i] = (int32_t)((uint64_t)x[i] >> shift);
		} else {
			for (int64_t i = 0; i < n; i++) dst[i] = (int32_t)(x[i] >> shift);
		}
	} else if (lanes == 2) {
		for (int64_t i = 0; i < n; i++) dst[i] = (int32_t)((uint64_t)x[i] >> shift) & MASK;
		if (shift <= 32 - RM_LANES_BITS) {
			for (int64_t i = 0; i < n; i++) dst[n + i] = (int32_t)((uint64_t)x[i] >> (shift + RM_LANES_BITS));
		} else {
			for (int64_t i = 0; i < n; i++) dst[n + i] = (int32_t)(x[i] >> shift >> RM_LANES_BITS);
		}
	} else if (lanes == 3) {
		for (int64_t i = 0; i < n; i++) {
			int nan = x[i] == NOT_A_NUMBER;
			dst[i] = nan ? 0 : (int32_t)(x[i] & MASK);
			dst[n + i] = nan ? 0 : (int32_t)(x[i] >> RM_LANES_BITS & MASK);
			dst[2 * n + i] = nan ? RM_LANES_NAN : (int32_t)(x[i] >> 2 * RM_LANES_BITS);
		}
	}
	return dst + lanes * n;
}

// value is a number of one or two lanes.
INLINE int64_t value(int lanes, const int32_t *src, int64_t n, int64_t i, int shift) {
	if (lanes == 1) return (int64_t)((uint64_t)(int64_t)src[i] << shift);
	return (int64_t)(((uint64_t)(uint32_t)src[i] + ((uint64_t)(int64_t)src[n + i] << RM_LANES_BITS)) << shift);
}

INLINE void add_wide(int64_t *acc, int lanes, int shift, const int32_t *src, int64_t n) {
	for (int64_t i = 0; i < n; i++) {
		if (acc[i] == NOT_A_NUMBER) continue;
		if (lanes < 3) {
			acc[i] += value(lanes, src, n, i, shift);
		} else if (src[2 * n + i] >= RM_LANES_NAN_END) {
			acc[i] = NOT_A_NUMBER;
		} else {
			acc[i] += (int64_t)((uint64_t)(uint32_t)src[i] + ((uint64_t)(uint32_t)src[n + i] << RM_LANES_BITS) +
			                    ((uint64_t)(int64_t)src[2 * n + i] << 2 * RM_LANES_BITS));
		}
	}
}

INLINE const int32_t *add(int64_t *restrict acc, int lanes, int shift, const int32_t *restrict src, int64_t n, int replace,
                          int careful) {
	if (lanes == 3 || careful) {
		if (replace) memset(acc, 0, (size_t)n * sizeof *acc);
		if (lanes > 0) add_wide(acc, lanes, shift, src, n);
	} else if (lanes == 0) {
		if (replace) memset(acc, 0, (size_t)n * sizeof *acc);
	} else if (lanes == 1) {
		if (replace) {
			for (int64_t i = 0; i < n; i++) acc[i] = value(1, src, n, i, shift);
		} else {
			for (int64_t i = 0; i < n; i++) acc[i] += value(1, src, n, i, shift);
		}
	} else if (replace) {
		for (int64_t i = 0; i < n; i++) acc[i] = value(2, src, n, i, shift);
	} else {
		for (int64_t i = 0; i < n; i++) acc[i] += value(2, src, n, i, shift);
	}
	return src + lanes * n;
}

// A block of full length has a constant one, so that its loops have no tails.
INLINE void measure_rows(uint8_t *limits, const int64_t *sums, int64_t rows, int64_t width) {
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < width; c += RM_LANES_BLOCK, limits += 2) {
			int64_t n = block_length(width - c);
			if (n == RM_LANES_BLOCK) measure(limits, sums + r * width + c, RM_LANES_BLOCK);
			else measure(limits, sums + r * width + c, n);
		}
	}
}

INLINE void encode_rows(int32_t *dst, const uint8_t *layouts, const int64_t *sums, int64_t rows, int64_t width) {
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < width; c += RM_LANES_BLOCK, layouts++) {
			int64_t n = block_length(width - c);
			const int64_t *x = sums + r * width + c;
			if (n == RM_LANES_BLOCK) dst = encode(dst, *layouts >> 6, *layouts & 63, x, RM_LANES_BLOCK);
			else dst = encode(dst, *layouts >> 6, *layouts & 63, x, n);
		}
	}
}

INLINE void add_rows(int64_t *sums, const uint8_t *layouts, const int32_t *src, int64_t rows, int64_t width, int replace,
                     int careful) {
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < width; c += RM_LANES_BLOCK, layouts++) {
			int64_t n = block_length(width - c), *x = sums + r * width + c;
			if (n == RM_LANES_BLOCK) src = add(x, *layouts >> 6, *layouts & 63, src, RM_LANES_BLOCK, replace, careful);
			else src = add(x, *layouts >> 6, *layouts & 63, src, n, replace, careful);
		}
	}
}

#define LEVEL(name, target)                                                                                             \
	target static void measure_##name(uint8_t *limits, const int64_t *sums, int64_t rows, int64_t width) {              \
		measure_rows(limits, sums, rows, width);                                                                        \
	}                                                                                                                   \
	target static void encode_##name(int32_t *dst, const uint8_t *layouts, const int64_t *sums, int64_t rows,           \
	                                 int64_t width) {                                                                   \
		encode_rows(dst, layouts, sums, rows, width);                                                                   \
	}                                                                                                                   \
	target static void add_##name(int64_t *sums, const uint8_t *layouts, const int32_t *src, int64_t rows,              \
	                              int64_t width, int replace, int careful) {                                            \
		add_rows(sums, layouts, src, rows, width, replace, careful);                                                    \
	}

LEVEL(plain, )

#if defined(__x86_64__)
LEVEL(avx2, __attribute__((target("avx2"))))
LEVEL(avx512, __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))))
#define CALL(f, ...) (level == 2 ? f##_avx512(__VA_ARGS__) : level == 1 ? f##_avx2(__VA_ARGS__) : f##_plain(__VA_ARGS__))

int rm_lanes_level(void) {
	__builtin_cpu_init(); // also checks the support of the operating system (XCR0)
	if (!__builtin_cpu_supports("avx2")) return 0;
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	               __builtin_cpu_supports("avx512vl")
	           ? 2
	           : 1;
}
#else
#define CALL(f, ...) ((void)level, f##_plain(__VA_ARGS__))

int rm_lanes_level(void) { return 0; }
#endif

void rm_lanes_measure(int level, uint8_t *limits, const int64_t *sums, int64_t rows, int64_t width) {
	CALL(measure, limits, sums, rows, width);
}

void rm_lanes_encode(int level, int32_t *dst, const uint8_t *layouts, const int64_t *sums, int64_t rows, int64_t width) {
	CALL(encode, dst, layouts, sums, rows, width);
}

void rm_lanes_add(int level, int64_t *sums, const uint8_t *layouts, const int32_t *src, int64_t rows, int64_t width,
                  int replace, int careful) {
	CALL(add, sums, layouts, src, rows, width, replace, careful);
}
