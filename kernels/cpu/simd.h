// Compiler and instruction set plumbing shared by the kernel files.
//
// All C files of a Go package are compiled with the same flags, so a file for
// one instruction set selects it for its own functions:
//
//	#include "simd.h"
//	#if RM_X86
//	RM_BEGIN_AVX2      (or RM_BEGIN_AVX512)
//	... functions ...
//	RM_END_TARGET
//	#endif
//
// Include every header before the RM_BEGIN line.
#ifndef RM_SIMD_H
#define RM_SIMD_H

#include <stdint.h>
#include <string.h>

// A product and a sum must not be fused unless the code says so: otherwise the
// levels, and the scalar tails of vector loops, would disagree. gcc complies
// with -std=c11 (cgo does not allow -ffp-contract=off); this pragma is for
// clang.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#if defined(__x86_64__)
#define RM_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define RM_X86 0
#endif

// NEON with byte dot products. An older clang offers the intrinsics only if the
// whole file may use them, as on macOS.
#if defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 17 || defined(__ARM_FEATURE_DOTPROD))
#define RM_NEON 1
#include <arm_neon.h>
#else
#define RM_NEON 0
#endif
#if RM_NEON && (!defined(__clang__) || __clang_major__ >= 17 || defined(__ARM_FEATURE_MATMUL_INT8))
#define RM_NEON_I8MM 1
#else
#define RM_NEON_I8MM 0
#endif

#define RM_DO_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
#define RM_BEGIN_AVX2 RM_DO_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function))
#define RM_BEGIN_AVX512 \
	RM_DO_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function))
#define RM_BEGIN_AVX512_VBMI \
	RM_DO_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni"))), apply_to = function))
#define RM_BEGIN_NEON RM_DO_PRAGMA(clang attribute push(__attribute__((target("dotprod"))), apply_to = function))
#define RM_BEGIN_NEON_I8MM RM_DO_PRAGMA(clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function))
#define RM_END_TARGET RM_DO_PRAGMA(clang attribute pop)
#else
#define RM_BEGIN_AVX2 RM_DO_PRAGMA(GCC push_options) RM_DO_PRAGMA(GCC target("avx2,fma,f16c"))
#define RM_BEGIN_AVX512 \
	RM_DO_PRAGMA(GCC push_options) RM_DO_PRAGMA(GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))
#define RM_BEGIN_AVX512_VBMI \
	RM_DO_PRAGMA(GCC push_options) RM_DO_PRAGMA(GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni"))
#define RM_BEGIN_NEON RM_DO_PRAGMA(GCC push_options) RM_DO_PRAGMA(GCC target("arch=armv8.2-a+dotprod"))
#define RM_BEGIN_NEON_I8MM RM_DO_PRAGMA(GCC push_options) RM_DO_PRAGMA(GCC target("arch=armv8.2-a+dotprod+i8mm"))
#define RM_END_TARGET RM_DO_PRAGMA(GCC pop_options)
#endif

// RM_UNROLL unrolls the loop that follows, so that its arrays become registers. The
// bounds of the loop must be constants.
#if defined(__clang__)
#define RM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define RM_UNROLL _Pragma("GCC unroll 16")
#endif

// RM_UNROLL_INLINED is RM_UNROLL for a loop with bounds that become constants by inlining.
// clang decides itself, because it warns where it is asked to unroll such a loop and does not.
#if defined(__clang__)
#define RM_UNROLL_INLINED
#else
#define RM_UNROLL_INLINED RM_UNROLL
#endif

// RM_ROLLED keeps the loop that follows from being unrolled.
#if defined(__clang__)
#define RM_ROLLED _Pragma("clang loop unroll(disable)")
#elif defined(__OPTIMIZE__)
#define RM_ROLLED _Pragma("GCC unroll 1")
#else
#define RM_ROLLED
#endif

#if RM_X86
// Only later compiler versions have f16c in cpu_supports.
static inline int rm_x86_f16c(void) {
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}
#endif

// rm_fma is a*b+c rounded once, on every machine.
static inline float rm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

static inline uint16_t rm_load16(const void *p) {
	uint16_t v;
	memcpy(&v, p, 2);
	return v;
}

static inline uint32_t rm_load32(const void *p) {
	uint32_t v;
	memcpy(&v, p, 4);
	return v;
}

static inline uint64_t rm_load64(const void *p) {
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

static inline float rm_bits_to_float(uint32_t u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static inline uint32_t rm_float_to_bits(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static inline float rm_bf16_to_float(uint16_t h) { return rm_bits_to_float((uint32_t)h << 16); }

// rm_float16_to_float: IEEE float16 to float32, exact; a NaN becomes quiet, as
// in F16C.
static inline float rm_float16_to_float(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t rest = h & 0x7fff;
	if (rest >= 0x7c00) { // infinity, NaN
		uint32_t quiet = rest > 0x7c00 ? 0x400000u : 0;
		return rm_bits_to_float(sign | 0x7f800000u | quiet | (rest & 0x3ff) << 13);
	}
	if (rest >= 0x400) return rm_bits_to_float(sign | ((rest << 13) + (112u << 23)));
	float f = (float)rest * 0x1p-24f; // zero or subnormal: exact
	return sign ? -f : f;
}

// rm_float_to_float16: float32 to IEEE float16, to nearest, ties to even.
static inline uint16_t rm_float_to_float16(float f) {
	uint32_t u = rm_float_to_bits(f);
	uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
	u &= 0x7fffffffu;
	if (u > 0x7f800000u) return sign | 0x7e00 | (uint16_t)(u >> 13 & 0x3ff);
	if (u >= 0x47800000u) return sign | 0x7c00; // 65536 and more
	if (u < 0x38800000u) {
		// Below 2^-14: adding 0.5 puts units of 2^-24 in the last place.
		float rounded = rm_bits_to_float(u) + 0.5f;
		return sign | (uint16_t)(rm_float_to_bits(rounded) - 0x3f000000u);
	}
	// 65520 and more carry into the exponent and become infinity.
	u += 0xfff + (u >> 13 & 1);
	return sign | (uint16_t)((u - (112u << 23)) >> 13);
}

#endif
