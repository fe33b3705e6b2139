// A benchmark of memory bandwidth: how fast the threads of a pool can read when
// they do nothing else, which bounds the speed of GEMV.
//
// Each thread reads eight widely separated streams at once and prefetches in
// each. A plain loop over one stream waits for the latency of its own cache
// lines and reaches about two thirds of that rate.
#include "cpu.h"
#include "simd.h"

#include <stdatomic.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE // C libraries older than Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif
#endif

enum {
	LINE = 64,
	STREAMS = 8,
	AHEAD = 32 * LINE, // prefetch distance
	// How much a thread takes at a time. An eighth of it is not a power of two,
	// so that the streams do not map to the same cache sets.
	CHUNK = (8 << 20) + (32 << 10),
	PAGE = 4096, // the smallest page size of any system
};

// READ_BODY adds the words of STREAMS streams of n bytes, a multiple of LINE, to
// sum[STREAMS]. The streams begin `apart` bytes apart. load_add adds the words of one
// line.
#define READ_BODY(vec, zero, load_add) \
	vec sum[STREAMS]; \
	for (int s = 0; s < STREAMS; s++) sum[s] = zero; \
	for (int64_t i = 0; i < n; i += LINE) { \
		for (int s = 0; s < STREAMS; s++) { \
			const uint8_t *at = mem + s * apart + i; \
			__builtin_prefetch((const void *)((uintptr_t)at + AHEAD)); \
			sum[s] = load_add(sum[s], at); \
		} \
	}

typedef uint64_t (*reader)(const uint8_t *mem, int64_t apart, int64_t n);

static inline uint64_t add_words(uint64_t sum, const uint8_t *at) {
	uint64_t w[LINE / 8];
	memcpy(w, at, sizeof w);
	for (int i = 0; i < LINE / 8; i++) sum += w[i];
	return sum;
}

static uint64_t read_portable(const uint8_t *mem, int64_t apart, int64_t n) {
	READ_BODY(uint64_t, 0, add_words)
	uint64_t all = 0;
	for (int s = 0; s < STREAMS; s++) all += sum[s];
	return all;
}

#if RM_X86
RM_BEGIN_AVX2
static inline __attribute__((always_inline)) __m256i add_256(__m256i sum, const uint8_t *at) {
	__m256i a = _mm256_loadu_si256((const __m256i *)at), b = _mm256_loadu_si256((const __m256i *)(at + 32));
	return _mm256_add_epi64(sum, _mm256_add_epi64(a, b));
}

static uint64_t read_avx2(const uint8_t *mem, int64_t apart, int64_t n) {
	READ_BODY(__m256i, _mm256_setzero_si256(), add_256)
	for (int s = 1; s < STREAMS; s++) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
	uint64_t w[4];
	_mm256_storeu_si256((__m256i *)w, sum[0]);
	return w[0] + w[1] + w[2] + w[3];
}
RM_END_TARGET

RM_BEGIN_AVX512
static inline __attribute__((always_inline)) __m512i add_512(__m512i sum, const uint8_t *at) {
	return _mm512_add_epi64(sum, _mm512_loadu_si512(at));
}

static uint64_t read_avx512(const uint8_t *mem, int64_t apart, int64_t n) {
	READ_BODY(__m512i, _mm512_setzero_si512(), add_512)
	for (int s = 1; s < STREAMS; s++) sum[0] = _mm512_add_epi64(sum[0], sum[s]);
	return (uint64_t)_mm512_reduce_add_epi64(sum[0]);
}
RM_END_TARGET
#endif

#if RM_NEON
static inline __attribute__((always_inline)) uint64x2_t add_neon(uint64x2_t sum, const uint8_t *at) {
	uint64x2_t v[4];
	for (int i = 0; i < 4; i++) v[i] = vreinterpretq_u64_u8(vld1q_u8(at + 16 * i));
	return vaddq_u64(sum, vaddq_u64(vaddq_u64(v[0], v[1]), vaddq_u64(v[2], v[3])));
}

static uint64_t read_neon(const uint8_t *mem, int64_t apart, int64_t n) {
	READ_BODY(uint64x2_t, vdupq_n_u64(0), add_neon)
	for (int s = 1; s < STREAMS; s++) sum[0] = vaddq_u64(sum[0], sum[s]);
	return vgetq_lane_u64(sum[0], 0) + vgetq_lane_u64(sum[0], 1);
}
#endif

static reader reader_of(const rm_pool *p) {
#if RM_X86
	if (rm_pool_level(p) == RM_LEVEL_AVX512 || rm_pool_level(p) == RM_LEVEL_AMX) return read_avx512;
	if (rm_pool_level(p) == RM_LEVEL_AVX2) return read_avx2;
#elif RM_NEON
	if (rm_pool_level(p) == RM_LEVEL_NEON) return read_neon;
#endif
	(void)p;
	return read_portable;
}

typedef struct {
	const uint8_t *mem;
	reader read;
	_Atomic uint64_t sum;
} stream_args;

static void read_chunk(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	stream_args *a = arg;
	int64_t apart = (end - begin) / STREAMS / LINE * LINE;
	uint64_t sum = a->read(a->mem + begin, apart, apart);
	for (int64_t at = begin + STREAMS * apart; at < end; at += LINE) sum += add_words(0, a->mem + at);
	atomic_fetch_add_explicit(&a->sum, sum, memory_order_relaxed);
}

uint64_t rm_stream(rm_pool *p, const uint8_t *mem, int64_t n) {
	stream_args a = {.mem = mem, .read = reader_of(p)};
	rm_pool_for(p, n / LINE * LINE, CHUNK, read_chunk, &a);
	return atomic_load(&a.sum);
}

static void touch_chunk(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	uint8_t *mem = arg;
#ifdef __linux__
	// All pages of the chunk at once, since Linux 5.14. Huge ones would be faster to
	// read than what is measured for, the pages of a mapped file.
	(void)madvise(mem + begin, (size_t)(end - begin), MADV_POPULATE_WRITE);
#endif
	for (int64_t at = begin; at < end; at += PAGE) mem[at] = 1;
}

void rm_stream_touch(rm_pool *p, uint8_t *mem, int64_t n) { rm_pool_for(p, n, CHUNK, touch_chunk, mem); }

int64_t rm_cache_bytes(void) {
	int64_t size = 0;
#if defined(__APPLE__)
	static const char *const names[] = {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"};
	for (int i = 0; i < 3 && size <= 0; i++) {
		size_t length = sizeof size;
		if (sysctlbyname(names[i], &size, &length, NULL, 0) != 0) size = 0;
	}
#elif defined(_SC_LEVEL3_CACHE_SIZE)
	size = sysconf(_SC_LEVEL3_CACHE_SIZE);
	if (size <= 0) size = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
	return size > 0 ? size : 0;
}
