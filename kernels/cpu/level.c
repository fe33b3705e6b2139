// Which instruction sets the machine has, and conversions of half precision.
#include "rm_cpu.h"
#include "rm_math.h"
#include "rm_matmul.h"

int rm_cpu_level(void) {
#if RM_X86
	__builtin_cpu_init(); // checks the system's support (XCR0) as well
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !rm_x86_f16c()) {
		return RM_LEVEL_PORTABLE;
	}
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vnni")) {
		return RM_LEVEL_AVX512;
	}
	return RM_LEVEL_AVX2;
#else
	return RM_LEVEL_PORTABLE;
#endif
}

const rm_kernels *rm_kernels_of(const rm_pool *p) {
#if RM_X86
	if (rm_pool_level(p) == RM_LEVEL_AVX512) return &rm_kernels_avx512;
	if (rm_pool_level(p) == RM_LEVEL_AVX2) return &rm_kernels_avx2;
#endif
	(void)p;
	return &rm_kernels_portable;
}

void rm_h2f_row(const rm_pool *p, float *dst, const uint16_t *src, int64_t n) {
	rm_kernels_of(p)->widen(RM_F16, (const uint8_t *)src, dst, n);
}

void rm_f2h_row(const rm_pool *p, uint16_t *dst, const float *src, int64_t n) { rm_kernels_of(p)->narrow(src, dst, n); }

float rm_expf(float x) { return rm_expf_inline(x); }

float rm_h2f(uint16_t h) { return rm_half_to_float(h); }
uint16_t rm_f2h(float f) { return rm_float_to_half(f); }
