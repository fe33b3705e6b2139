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

// size is how many int32 a block of n sums takes, rounded up.
INLINE int64_t size(int form, int64_t n) {
	switch (form) {
	case RM_LANES_ZEROS: return 0;
	case RM_LANES_WORDS: return (n + 1) / 2;
	case RM_LANES_TRIPLES: return (3 * n + 3) / 4;
	case RM_LANES_ONE: return n;
	case RM_LANES_TWO: return 2 * n;
	default: return 3 * n;
	}
}

// low_bits are the lower 32 bits of x >> shift; with a constant of 1 for small the shift
// is at most 32, so that a logical one has the same.
INLINE uint32_t low_bits(int64_t x, int shift, int small) {
	return (uint32_t)(small ? (uint64_t)x >> shift : (uint64_t)(x >> shift));
}

INLINE void encode(int32_t *restrict dst, int form, int shift, const int64_t *restrict x, int64_t n, int small) {
	switch (form) {
	case RM_LANES_ZEROS: return;
	case RM_LANES_WORDS: {
		uint16_t *lower = (uint16_t *)(void *)dst;
		for (int64_t i = 0; i < n; i++) lower[i] = (uint16_t)low_bits(x[i], shift, small);
		return;
	}
	case RM_LANES_TRIPLES: {
		uint16_t *lower = (uint16_t *)(void *)dst;
		uint8_t *upper = (uint8_t *)(lower + n);
		for (int64_t i = 0; i < n; i++) lower[i] = (uint16_t)low_bits(x[i], shift, small);
		for (int64_t i = 0; i < n; i++) upper[i] = (uint8_t)(low_bits(x[i], shift, small) >> 16);
		return;
	}
	case RM_LANES_ONE:
		for (int64_t i = 0; i < n; i++) dst[i] = (int32_t)low_bits(x[i], shift, small);
		return;
	case RM_LANES_TWO:
		for (int64_t i = 0; i < n; i++) dst[i] = (int32_t)low_bits(x[i], shift, small) & MASK;
		for (int64_t i = 0; i < n; i++) dst[n + i] = (int32_t)(x[i] >> shift >> RM_LANES_BITS);
		return;
	default:
		for (int64_t i = 0; i < n; i++) {
			int nan = x[i] == NOT_A_NUMBER;
			dst[i] = nan ? 0 : (int32_t)(x[i] & MASK);
			dst[n + i] = nan ? 0 : (int32_t)(x[i] >> RM_LANES_BITS & MASK);
			dst[2 * n + i] = nan ? RM_LANES_NAN : (int32_t)(x[i] >> 2 * RM_LANES_BITS);
		}
	}
}

// value is a number of a block of one or two lanes.
INLINE int64_t value(int form, const int32_t *src, int64_t n, int64_t i, int shift) {
	const uint16_t *lower = (const uint16_t *)(const void *)src;
	int64_t v;
	switch (form) {
	case RM_LANES_WORDS: v = (int16_t)lower[i]; break;
	case RM_LANES_TRIPLES: v = lower[i] | (int64_t)((uint64_t)(int64_t)((const int8_t *)(lower + n))[i] << 16); break;
	case RM_LANES_ONE: v = src[i]; break;
	default: v = (int64_t)((uint64_t)(uint32_t)src[i] + ((uint64_t)(int64_t)src[n + i] << RM_LANES_BITS));
	}
	return (int64_t)((uint64_t)v << shift);
}

INLINE void add_careful(int64_t *acc, int form, int shift, const int32_t *src, int64_t n) {
	for (int64_t i = 0; i < n; i++) {
		if (acc[i] == NOT_A_NUMBER) continue;
		if (form < RM_LANES_MANY) {
			acc[i] += value(form, src, n, i, shift);
		} else if (src[2 * n + i] >= RM_LANES_NAN_END) {
			acc[i] = NOT_A_NUMBER;
		} else {
			acc[i] += (int64_t)((uint64_t)(uint32_t)src[i] + ((uint64_t)(uint32_t)src[n + i] << RM_LANES_BITS) +
			                    ((uint64_t)(int64_t)src[2 * n + i] << 2 * RM_LANES_BITS));
		}
	}
}

INLINE void add_form(int64_t *restrict acc, int form, int shift, const int32_t *restrict src, int64_t n, int replace) {
	if (replace) {
		for (int64_t i = 0; i < n; i++) acc[i] = value(form, src, n, i, shift);
	} else {
		for (int64_t i = 0; i < n; i++) acc[i] += value(form, src, n, i, shift);
	}
}

INLINE void add(int64_t *acc, int form, int shift, const int32_t *src, int64_t n, int replace, int careful) {
	if (careful || form >= RM_LANES_MANY || form == RM_LANES_ZEROS) {
		if (replace) memset(acc, 0, (size_t)n * sizeof *acc);
		if (form != RM_LANES_ZEROS) add_careful(acc, form, shift, src, n);
		return;
	}
	switch (form) { // so that each has loops of its own
	case RM_LANES_WORDS: add_form(acc, RM_LANES_WORDS, shift, src, n, replace); return;
	case RM_LANES_TRIPLES: add_form(acc, RM_LANES_TRIPLES, shift, src, n, replace); return;
	case RM_LANES_ONE: add_form(acc, RM_LANES_ONE, shift, src, n, replace); return;
	default: add_form(acc, RM_LANES_TWO, shift, src, n, replace);
	}
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
			int form = *layouts >> 5, shift = 2 * (*layouts & 31);
			const int64_t *x = sums + r * width + c;
			if (n < RM_LANES_BLOCK || shift > 32) encode(dst, form, shift, x, n, 0);
			else encode(dst, form, shift, x, RM_LANES_BLOCK, 1);
			dst += size(form, n);
		}
	}
}

INLINE void add_rows(int64_t *sums, const uint8_t *layouts, const int32_t *src, int64_t rows, int64_t width, int replace,
                     int careful) {
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < width; c += RM_LANES_BLOCK, layouts++) {
			int64_t n = block_length(width - c), *x = sums + r * width + c;
			int form = *layouts >> 5, shift = 2 * (*layouts & 31);
			if (n == RM_LANES_BLOCK) add(x, form, shift, src, RM_LANES_BLOCK, replace, careful);
			else add(x, form, shift, src, n, replace, careful);
			src += size(form, n);
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
