// Detection of the instruction sets that the processor and the operating system
// support, and float16 conversions.
#include "cpu.h"
#include "exp.h"
#include "matmul.h"

#include <pthread.h>
#if RM_NEON && defined(__APPLE__)
#include <sys/sysctl.h>
#elif RM_NEON && defined(__linux__)
#include <sys/auxv.h>
#endif

#if RM_X86 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

// Requirements for using AMX in a process: the processor has tiles and their
// int8 and bfloat16 products, the operating system has enabled both parts of
// the tile state (XCR0), and it grants permission to use the large one (tile
// data), which then holds for all threads.
static int amx;

static void ask_for_amx(void) {
	unsigned a, b, c, d, low, high;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return; // XGETBV
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 0xd) != 0xd) return;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if ((low >> 17 & 3) != 3) return;
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
	amx = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static int has_amx(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, ask_for_amx);
	return amx;
}
#elif RM_X86
static inline int has_amx(void) { return 0; }
#endif

#if RM_NEON && defined(__APPLE__)
static int has(const char *feature) {
	int value = 0;
	size_t size = sizeof value;
	return sysctlbyname(feature, &value, &size, NULL, 0) == 0 && value;
}

static int has_dotprod(void) { return has("hw.optional.arm.FEAT_DotProd"); }
static int asks_i8mm(void) { return has("hw.optional.arm.FEAT_I8MM"); }
#elif RM_NEON && defined(__linux__)
// Numeric constants of the kernel interface; older headers lack some of the
// names.
static int has_dotprod(void) { return (getauxval(AT_HWCAP) >> 20 & 1) != 0; } // HWCAP_ASIMDDP
static int asks_i8mm(void) { return (getauxval(26) >> 13 & 1) != 0; }            // AT_HWCAP2, HWCAP2_I8MM
#elif RM_NEON
static int has_dotprod(void) { return 0; }
static int asks_i8mm(void) { return 0; }
#endif

#if RM_NEON
static int i8mm;
#if RM_NEON_I8MM
#define BEST_NEON &rm_kernels_neon_i8mm
#else
#define BEST_NEON &rm_kernels_neon
#endif

static void ask_for_i8mm(void) { i8mm = RM_NEON_I8MM && asks_i8mm(); }

// has_i8mm says whether the neon level may use the i8mm matrix instructions.
static int has_i8mm(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, ask_for_i8mm);
	return i8mm;
}
#endif

int rm_cpu_level(void) {
#if RM_X86
	__builtin_cpu_init(); // checks support by the operating system (XCR0) as well
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !rm_x86_f16c()) {
		return RM_LEVEL_PORTABLE;
	}
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vnni")) {
		return has_amx() ? RM_LEVEL_AMX : RM_LEVEL_AVX512;
	}
	return RM_LEVEL_AVX2;
#elif RM_NEON
	return has_dotprod() ? RM_LEVEL_NEON : RM_LEVEL_PORTABLE;
#else
	return RM_LEVEL_PORTABLE;
#endif
}

int rm_cpu_has(int level) {
	int best = rm_cpu_level();
	if (best == RM_LEVEL_NEON) return level == RM_LEVEL_PORTABLE || level == best;
	return level >= RM_LEVEL_PORTABLE && level <= best;
}

const rm_kernels *rm_kernels_for(int level) {
#if RM_X86
	if (level == RM_LEVEL_AMX) return &rm_kernels_amx;
	if (level == RM_LEVEL_AVX512) return &rm_kernels_avx512;
	if (level == RM_LEVEL_AVX2) return &rm_kernels_avx2;
#elif RM_NEON
	if (level == RM_LEVEL_NEON) return has_i8mm() ? BEST_NEON : &rm_kernels_neon;
#endif
	(void)level;
	return &rm_kernels_portable;
}

// ---- first-level cache -------------------------------------------------------

// Prefetching into a first-level cache of 32 KiB (Zen 4) holds back a kernel that is
// faster than memory: Q8_0 of 8192 columns on one thread reads 18.1 GB/s so, 19.2 without
// prefetching and 24.0 with prefetching into the second level. Kernels that memory does
// not limit are 2 to 10 % faster with prefetching into the first level. With 48 KiB and
// more that was the fastest for all (docs/notes/decode.md).
#define NEAR_BYTES (48 << 10)

#if RM_X86
static int far_prefetch;

// data_cache is the size of the first-level data cache by the cache leaf of Intel or AMD
// (the layout of both is the same), 0 if there is none.
static int64_t data_cache(unsigned leaf) {
	unsigned a, b, c, d;
	for (unsigned i = 0; i < 16 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31) != 0; i++) {
		unsigned type = a & 31, level = a >> 5 & 7;
		if (type == 1 && level == 1) {
			return (int64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((int64_t)c + 1);
		}
	}
	return 0;
}

static void ask_for_cache(void) {
	int64_t size = data_cache(4);
	if (size == 0) size = data_cache(0x8000001d);
	far_prefetch = size < NEAR_BYTES;
}

int rm_prefetch_far(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, ask_for_cache);
	return far_prefetch;
}
#else
int rm_prefetch_far(void) { return 0; } // only kernels for x86 prefetch
#endif

void rm_f16_to_f32_row(const rm_pool *p, float *dst, const uint16_t *src, int64_t n) {
	rm_kernels_of(p)->widen(RM_F16, (const uint8_t *)src, dst, n);
}

void rm_f32_to_f16_row(const rm_pool *p, uint16_t *dst, const float *src, int64_t n) { rm_kernels_of(p)->narrow(src, dst, n); }

float rm_expf(float x) { return rm_expf_inline(x); }

float rm_f16_to_f32(uint16_t h) { return rm_float16_to_float(h); }
uint16_t rm_f32_to_f16(float f) { return rm_float_to_float16(f); }
