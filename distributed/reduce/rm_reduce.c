#include "rm_reduce.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define TARGET_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))

int rm_reduce_level(void) {
	unsigned a, b, c, d;
	__builtin_cpu_init(); // also checks the support of the operating system (XCR0)
	if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 29))) {
		return RM_REDUCE_PLAIN; // bit 29 is F16C; older compilers cannot ask for it by name
	}
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl")) {
		return RM_REDUCE_AVX512;
	}
	return RM_REDUCE_AVX2;
}

// AVX2: eight elements at a time. A rest of fewer than eight passes through a
// padded copy, so that the same instructions round it.

TARGET_AVX2 static inline __m256 load_f16x8(const uint8_t *p) {
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

TARGET_AVX2 static inline __m256 canonical8(__m256 sum) {
	__m256 nan = _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q);
	return _mm256_blendv_ps(sum, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan);
}

TARGET_AVX2 static void f16_avx2(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256 sum = load_f16x8(p[0] + 2 * i);
		for (int b = 1; b < k; b++) sum = _mm256_add_ps(sum, load_f16x8(p[b] + 2 * i));
		_mm_storeu_si128((__m128i *)(void *)(dst + 2 * i), _mm256_cvtps_ph(canonical8(sum), _MM_FROUND_TO_NEAREST_INT));
	}
	if (i < n) {
		size_t rest = (size_t)(n - i) * 2;
		uint8_t x[16] = {0};
		memcpy(x, p[0] + 2 * i, rest);
		__m256 sum = load_f16x8(x);
		for (int b = 1; b < k; b++) {
			memcpy(x, p[b] + 2 * i, rest);
			sum = _mm256_add_ps(sum, load_f16x8(x));
		}
		_mm_storeu_si128((__m128i *)(void *)x, _mm256_cvtps_ph(canonical8(sum), _MM_FROUND_TO_NEAREST_INT));
		memcpy(dst + 2 * i, x, rest);
	}
}

TARGET_AVX2 static inline __m256 load_f32x8(const uint8_t *p) {
	return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

TARGET_AVX2 static inline void store_f32x8(uint8_t *p, __m256 v) {
	_mm256_storeu_si256((__m256i *)(void *)p, _mm256_castps_si256(v));
}

TARGET_AVX2 static void f32_avx2(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256 sum = load_f32x8(p[0] + 4 * i);
		for (int b = 1; b < k; b++) sum = _mm256_add_ps(sum, load_f32x8(p[b] + 4 * i));
		store_f32x8(dst + 4 * i, canonical8(sum));
	}
	if (i < n) {
		size_t rest = (size_t)(n - i) * 4;
		uint8_t x[32] = {0};
		memcpy(x, p[0] + 4 * i, rest);
		__m256 sum = load_f32x8(x);
		for (int b = 1; b < k; b++) {
			memcpy(x, p[b] + 4 * i, rest);
			sum = _mm256_add_ps(sum, load_f32x8(x));
		}
		store_f32x8(x, canonical8(sum));
		memcpy(dst + 4 * i, x, rest);
	}
}

TARGET_AVX2 static inline __m256i load_i32x8(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }

// add_i32 adds element by element, for the rests of the vectors.
static inline void add_i32(uint8_t *dst, int64_t i, int64_t n, int k, const uint8_t *const *p) {
	for (; i < n; i++) {
		uint32_t sum = 0, x;
		for (int b = 0; b < k; b++) {
			memcpy(&x, p[b] + 4 * i, 4);
			sum += x;
		}
		memcpy(dst + 4 * i, &sum, 4);
	}
}

TARGET_AVX2 static void i32_avx2(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256i sum = load_i32x8(p[0] + 4 * i);
		for (int b = 1; b < k; b++) sum = _mm256_add_epi32(sum, load_i32x8(p[b] + 4 * i));
		_mm256_storeu_si256((__m256i *)(void *)(dst + 4 * i), sum);
	}
	add_i32(dst, i, n, k, p);
}

TARGET_AVX2 static int nonfinite_avx2(const uint8_t *x, int64_t n) {
	const __m256i all = _mm256_set1_epi16(0x7c00);
	int64_t i = 0;
	for (; i + 64 <= n; i += 64) {
		__m256i any = _mm256_setzero_si256();
		for (int j = 0; j < 4; j++) {
			__m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + 2 * i + 32 * j));
			any = _mm256_or_si256(any, _mm256_cmpeq_epi16(_mm256_and_si256(v, all), all));
		}
		if (_mm256_movemask_epi8(any)) return 1;
	}
	for (; i < n; i++) {
		uint16_t h;
		memcpy(&h, x + 2 * i, 2);
		if ((h & 0x7c00) == 0x7c00) return 1;
	}
	return 0;
}

// AVX-512: sixteen at a time, the rest under a mask.

TARGET_AVX512 static inline __m512 canonical16(__m512 sum) {
	__mmask16 nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
	return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(sum), nan, 0x7fc00000));
}

TARGET_AVX512 static inline __m512 load_f16x16(__mmask16 m, const uint8_t *p) {
	return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
}

TARGET_AVX512 static inline __attribute__((always_inline))
void f16_avx512_blocks(uint8_t *dst, int64_t n, const int k, const uint8_t *const *p) {
	int64_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m512 a = load_f16x16(0xffff, p[0] + 2 * i), b = load_f16x16(0xffff, p[0] + 2 * i + 32);
		for (int j = 1; j < k; j++) {
			a = _mm512_add_ps(a, load_f16x16(0xffff, p[j] + 2 * i));
			b = _mm512_add_ps(b, load_f16x16(0xffff, p[j] + 2 * i + 32));
		}
		__m256i x = _mm512_cvtps_ph(canonical16(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		__m256i y = _mm512_cvtps_ph(canonical16(b), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		_mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i), x);
		_mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i + 32), y);
	}
	for (; i < n; i += 16) {
		__mmask16 m = n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
		__m512 sum = load_f16x16(m, p[0] + 2 * i);
		for (int b = 1; b < k; b++) sum = _mm512_add_ps(sum, load_f16x16(m, p[b] + 2 * i));
		_mm256_mask_storeu_epi16(dst + 2 * i, m, _mm512_cvtps_ph(canonical16(sum), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	}
}

// The usual numbers of blocks are compile-time constants, so that the inner loop is
// unrolled.
TARGET_AVX512 static void f16_avx512(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	switch (k) {
	case 2: f16_avx512_blocks(dst, n, 2, p); return;
	case 3: f16_avx512_blocks(dst, n, 3, p); return;
	case 4: f16_avx512_blocks(dst, n, 4, p); return;
	default: f16_avx512_blocks(dst, n, k, p);
	}
}

TARGET_AVX512 static void f32_avx512(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	for (int64_t i = 0; i < n; i += 16) {
		__mmask16 m = n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
		__m512 sum = _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(m, p[0] + 4 * i));
		for (int b = 1; b < k; b++) {
			sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(m, p[b] + 4 * i)));
		}
		_mm512_mask_storeu_epi32(dst + 4 * i, m, _mm512_castps_si512(canonical16(sum)));
	}
}

TARGET_AVX512 static void i32_avx512(uint8_t *dst, int64_t n, int k, const uint8_t *const *p) {
	for (int64_t i = 0; i < n; i += 16) {
		__mmask16 m = n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
		__m512i sum = _mm512_maskz_loadu_epi32(m, p[0] + 4 * i);
		for (int b = 1; b < k; b++) sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(m, p[b] + 4 * i));
		_mm512_mask_storeu_epi32(dst + 4 * i, m, sum);
	}
}

TARGET_AVX512 static int nonfinite_avx512(const uint8_t *x, int64_t n) {
	const __m512i all = _mm512_set1_epi16(0x7c00);
	for (int64_t i = 0; i < n; i += 32) {
		__mmask32 m = n - i >= 32 ? 0xffffffffu : (1u << (n - i)) - 1;
		__m512i v = _mm512_maskz_loadu_epi16(m, x + 2 * i);
		if (_mm512_cmpeq_epi16_mask(_mm512_and_si512(v, all), all)) return 1;
	}
	return 0;
}

void rm_reduce_sum(int level, int type, void *dst, int64_t n, int k, const void *p0, const void *p1, const void *p2,
                   const void *p3, const void *p4, const void *p5, const void *p6, const void *p7) {
	const uint8_t *const p[RM_REDUCE_BLOCKS] = {p0, p1, p2, p3, p4, p5, p6, p7};
	int wide = level == RM_REDUCE_AVX512;
	switch (type) {
	case RM_REDUCE_F16: (wide ? f16_avx512 : f16_avx2)(dst, n, k, p); return;
	case RM_REDUCE_I32: (wide ? i32_avx512 : i32_avx2)(dst, n, k, p); return;
	default: (wide ? f32_avx512 : f32_avx2)(dst, n, k, p);
	}
}

int rm_reduce_nonfinite(int level, const void *x, int64_t n) {
	return level == RM_REDUCE_AVX512 ? nonfinite_avx512(x, n) : nonfinite_avx2(x, n);
}

#elif defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

int rm_reduce_level(void) { return RM_REDUCE_NEON; }

// NEON: four elements at a time; a rest passes through a padded copy.

static inline float32x4_t load_f16x4(const uint8_t *p) {
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

static inline float32x4_t canonical4(float32x4_t sum) {
	return vbslq_f32(vceqq_f32(sum, sum), sum, vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000)));
}

static inline void sum_f16x4(uint8_t *dst, int k, const uint8_t *const *p, int64_t at) {
	float32x4_t sum = load_f16x4(p[0] + at);
	for (int b = 1; b < k; b++) sum = vaddq_f32(sum, load_f16x4(p[b] + at));
	vst1_u8(dst + at, vreinterpret_u8_f16(vcvt_f16_f32(canonical4(sum))));
}

static inline float32x4_t load_f32x4(const uint8_t *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }

static inline void sum_f32x4(uint8_t *dst, int k, const uint8_t *const *p, int64_t at) {
	float32x4_t sum = load_f32x4(p[0] + at);
	for (int b = 1; b < k; b++) sum = vaddq_f32(sum, load_f32x4(p[b] + at));
	vst1q_u8(dst + at, vreinterpretq_u8_f32(canonical4(sum)));
}

static inline void sum_i32x4(uint8_t *dst, int k, const uint8_t *const *p, int64_t at) {
	uint32x4_t sum = vreinterpretq_u32_u8(vld1q_u8(p[0] + at));
	for (int b = 1; b < k; b++) sum = vaddq_u32(sum, vreinterpretq_u32_u8(vld1q_u8(p[b] + at)));
	vst1q_u8(dst + at, vreinterpretq_u8_u32(sum));
}

static inline void sum_x4(int type, uint8_t *dst, int k, const uint8_t *const *p, int64_t at) {
	switch (type) {
	case RM_REDUCE_F16: sum_f16x4(dst, k, p, at); return;
	case RM_REDUCE_I32: sum_i32x4(dst, k, p, at); return;
	default: sum_f32x4(dst, k, p, at);
	}
}

void rm_reduce_sum(int level, int type, void *dst, int64_t n, int k, const void *p0, const void *p1, const void *p2,
                   const void *p3, const void *p4, const void *p5, const void *p6, const void *p7) {
	const uint8_t *const p[RM_REDUCE_BLOCKS] = {p0, p1, p2, p3, p4, p5, p6, p7};
	uint8_t *out = dst;
	int64_t step = type == RM_REDUCE_F16 ? 8 : 16, bytes = n * step / 4, at = 0;
	(void)level;
	for (; at + step <= bytes; at += step) sum_x4(type, out, k, p, at);
	if (at == bytes) return;
	uint8_t rest[RM_REDUCE_BLOCKS][16] = {{0}}, sum[16];
	const uint8_t *q[RM_REDUCE_BLOCKS];
	for (int b = 0; b < RM_REDUCE_BLOCKS; b++) {
		q[b] = rest[b];
		if (b < k) memcpy(rest[b], p[b] + at, (size_t)(bytes - at));
	}
	sum_x4(type, sum, k, q, 0);
	memcpy(out + at, sum, (size_t)(bytes - at));
}

int rm_reduce_nonfinite(int level, const void *x, int64_t n) {
	const uint8_t *p = x;
	const uint16x8_t all = vdupq_n_u16(0x7c00);
	int64_t i = 0;
	(void)level;
	for (; i + 32 <= n; i += 32) {
		uint16x8_t any = vdupq_n_u16(0);
		for (int j = 0; j < 4; j++) {
			uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(p + 2 * i + 16 * j));
			any = vorrq_u16(any, vceqq_u16(vandq_u16(v, all), all));
		}
		if (vmaxvq_u16(any)) return 1;
	}
	for (; i < n; i++) {
		uint16_t h;
		memcpy(&h, p + 2 * i, 2);
		if ((h & 0x7c00) == 0x7c00) return 1;
	}
	return 0;
}

#else

// This processor has no vector code, so the Go package computes everything.
int rm_reduce_level(void) { return RM_REDUCE_PLAIN; }

void rm_reduce_sum(int level, int type, void *dst, int64_t n, int k, const void *p0, const void *p1, const void *p2,
                   const void *p3, const void *p4, const void *p5, const void *p6, const void *p7) {
	(void)level, (void)type, (void)dst, (void)n, (void)k;
	(void)p0, (void)p1, (void)p2, (void)p3, (void)p4, (void)p5, (void)p6, (void)p7;
}

int rm_reduce_nonfinite(int level, const void *x, int64_t n) {
	(void)level, (void)x, (void)n;
	return 0;
}

#endif
