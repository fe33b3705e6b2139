// The thread pool: persistent workers, chunks handed out by a counter.
//
// A loop is open while the gate says so. A worker that sees it open joins (the
// gate counts the workers inside), takes chunks until none is left and leaves.
// The caller takes chunks too; when none is left it closes the gate and waits
// for the workers inside. A worker that wakes late finds the gate closed and
// stays out, so a loop never waits for a thread that is not running.
#include "matmul.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

// Gate word: loop number in the high 32 bits, OPEN, workers inside below it.
#define GATE_OPEN ((uint64_t)1 << 31)
#define GATE_INSIDE (GATE_OPEN - 1)

// How long a thread spins for work before it sleeps. The ops of a step follow
// one another within microseconds; waking a sleeping thread costs several.
#define SPIN_NS 30000

typedef struct {
	void *mem;
	size_t size;
} buffer;

typedef struct {
	rm_pool *pool;
	int index;
	pthread_t thread;
	buffer scratch;
} worker;

struct rm_pool {
	int n, level;
	rm_kernels kernels; // of the level
	long spin_ns;
	worker *workers; // [n], 0 is the caller
	int started;     // threads running
	buffer shared;

	// the loop; written only while the gate is closed and empty
	rm_task task;
	void *arg;
	int64_t count, grain;

	_Alignas(64) _Atomic int64_t next;  // first item not yet handed out
	_Alignas(64) _Atomic uint64_t gate;
	_Alignas(64) _Atomic int sleepers;  // workers in or near cond_wait
	_Atomic int caller_sleeps;
	_Atomic int stop;

	pthread_mutex_t mutex;
	pthread_cond_t work, done;
};

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rm_cpu_count(void) {
#ifdef __linux__
	// The set grows until the kernel's mask fits (hosts with more than 1024
	// CPUs).
	for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
		cpu_set_t *set = CPU_ALLOC((size_t)cpus);
		if (!set) break;
		size_t size = CPU_ALLOC_SIZE((size_t)cpus);
		int n = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
		CPU_FREE(set);
		if (n > 0) return n;
	}
#endif
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (int)n : 1;
}

// Smaller allocations come from malloc. The C library keeps what is freed there,
// in up to eight arenas per processor, for threads that may never ask for it
// again: with a bound of 1 MiB the KV caches of a small model took twice their
// size. A mapping goes back to the system as a whole.
#define MAP_FROM ((size_t)16 << 10)

void *rm_alloc(size_t n) {
	if (n == 0 || n > SIZE_MAX - 64) return NULL;
	if (n >= MAP_FROM) {
		void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return p == MAP_FAILED ? NULL : p;
	}
	size_t rounded = (n + 63) / 64 * 64;
	void *p = NULL;
	if (posix_memalign(&p, 64, rounded) != 0) return NULL;
	memset(p, 0, rounded);
	return p;
}

void rm_free(void *p, size_t n) {
	if (!p) return;
	if (n >= MAP_FROM) {
		munmap(p, n);
	} else {
		free(p);
	}
}

// take runs chunks of the open loop until none is left.
static void take(rm_pool *p, int index) {
	int64_t n = p->count, grain = p->grain;
	for (;;) {
		int64_t begin = atomic_fetch_add_explicit(&p->next, grain, memory_order_relaxed);
		if (begin >= n) return;
		p->task(p->arg, begin, n - begin < grain ? n : begin + grain, index);
	}
}

// join enters the loop the gate shows; 0 when it is closed.
static int join(rm_pool *p) {
	uint64_t g = atomic_load(&p->gate);
	while (g & GATE_OPEN) {
		if (atomic_compare_exchange_weak(&p->gate, &g, g + 1)) return 1;
	}
	return 0;
}

// wake wakes the sleepers of cond. The mutex is taken so that no thread is between its
// last look and its sleep, and given back first, because a thread that wakes would have to
// wait for it.
static void wake(rm_pool *p, pthread_cond_t *cond) {
	pthread_mutex_lock(&p->mutex);
	pthread_mutex_unlock(&p->mutex);
	pthread_cond_broadcast(cond);
}

static void leave(rm_pool *p) {
	uint64_t g = atomic_fetch_sub(&p->gate, 1) - 1;
	if (!(g & GATE_OPEN) && !(g & GATE_INSIDE) && atomic_load(&p->caller_sleeps)) {
		wake(p, &p->done);
	}
}

// news says whether the gate has moved on to a loop later than `seen`.
static int news(rm_pool *p, uint32_t seen) {
	return (uint32_t)(atomic_load(&p->gate) >> 32) != seen || atomic_load(&p->stop);
}

static void await_work(rm_pool *p, uint32_t seen) {
	if (p->spin_ns > 0) {
		int64_t until = now_ns() + p->spin_ns;
		do {
			for (int i = 0; i < 16; i++) {
				if (news(p, seen)) return;
				relax();
			}
		} while (now_ns() < until);
	}
	pthread_mutex_lock(&p->mutex);
	// The sleeper is counted before it looks at the gate a last time:
	// rm_pool_for moves the gate first and reads the count second, so one of
	// the two sees the other.
	atomic_fetch_add(&p->sleepers, 1);
	while (!news(p, seen)) pthread_cond_wait(&p->work, &p->mutex);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->mutex);
}

static void *run(void *arg) {
	worker *w = arg;
	rm_pool *p = w->pool;
	uint32_t seen = 0;
	for (;;) {
		await_work(p, seen);
		if (atomic_load(&p->stop)) return NULL;
		seen = (uint32_t)(atomic_load(&p->gate) >> 32);
		if (join(p)) {
			take(p, w->index);
			leave(p);
		}
	}
}

rm_pool *rm_pool_new(int n, int level) {
	if (n < 1) return NULL;
	rm_pool *p = NULL;
	if (posix_memalign((void **)&p, 64, sizeof *p) != 0) return NULL;
	memset(p, 0, sizeof *p);
	p->workers = calloc((size_t)n, sizeof *p->workers);
	if (!p->workers) {
		free(p);
		return NULL;
	}
	p->n = n;
	p->level = level;
	p->kernels = *rm_kernels_for(level);
	// With more threads than processors, a spinning thread would keep another
	// from running.
	p->spin_ns = n <= rm_cpu_count() ? SPIN_NS : 0;
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	for (int i = 0; i < n; i++) p->workers[i] = (worker){.pool = p, .index = i};
	for (int i = 1; i < n; i++) {
		if (pthread_create(&p->workers[i].thread, NULL, run, &p->workers[i]) != 0) {
			rm_pool_free(p);
			return NULL;
		}
		p->started++;
	}
	return p;
}

void rm_pool_free(rm_pool *p) {
	if (!p) return;
	pthread_mutex_lock(&p->mutex);
	atomic_store(&p->stop, 1);
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->mutex);
	for (int i = 1; i <= p->started; i++) pthread_join(p->workers[i].thread, NULL);
	for (int i = 0; i < p->n; i++) rm_free(p->workers[i].scratch.mem, p->workers[i].scratch.size);
	rm_free(p->shared.mem, p->shared.size);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->mutex);
	free(p->workers);
	free(p);
}

int rm_pool_size(const rm_pool *p) { return p->n; }
int rm_pool_level(const rm_pool *p) { return p->level; }
void rm_pool_set_upper_only(rm_pool *p, int upper_only) { p->kernels.upper_only = upper_only; }
const rm_kernels *rm_kernels_of(const rm_pool *p) { return &p->kernels; }

void rm_pool_for(rm_pool *p, int64_t n, int64_t grain, rm_task task, void *arg) {
	if (n <= 0) return;
	if (grain < 1) grain = 1;
	if (p->started == 0 || n <= grain) {
		for (int64_t begin = 0; begin < n; begin += grain) {
			task(arg, begin, n - begin < grain ? n : begin + grain, 0);
		}
		return;
	}
	p->task = task;
	p->arg = arg;
	p->count = n;
	p->grain = grain;
	atomic_store_explicit(&p->next, 0, memory_order_relaxed);
	uint64_t loop = (atomic_load(&p->gate) >> 32) + 1;
	atomic_store(&p->gate, (loop << 32) | GATE_OPEN);
	if (atomic_load(&p->sleepers) > 0) {
		wake(p, &p->work);
	}
	take(p, 0);
	uint64_t g = atomic_fetch_and(&p->gate, ~GATE_OPEN);
	if (!(g & GATE_INSIDE)) return;
	int64_t until = now_ns() + p->spin_ns;
	do {
		for (int i = 0; i < 16; i++) {
			if (!(atomic_load(&p->gate) & GATE_INSIDE)) return;
			relax();
		}
	} while (now_ns() < until);
	pthread_mutex_lock(&p->mutex);
	atomic_store(&p->caller_sleeps, 1);
	while (atomic_load(&p->gate) & GATE_INSIDE) pthread_cond_wait(&p->done, &p->mutex);
	atomic_store(&p->caller_sleeps, 0);
	pthread_mutex_unlock(&p->mutex);
}

static void *grow(buffer *b, size_t bytes) {
	if (bytes < 64) bytes = 64;
	if (b->size >= bytes) return b->mem;
	// An eighth more than needed, so that a sequence that grows does not map
	// memory with each token. The content need not survive, so that the old
	// memory goes first.
	size_t size = bytes < SIZE_MAX / 2 ? bytes + bytes / 8 : bytes;
	rm_free(b->mem, b->size);
	b->mem = rm_alloc(size);
	b->size = b->mem ? size : 0;
	return b->mem;
}

size_t rm_pool_bytes(const rm_pool *p) {
	size_t n = p->shared.size;
	for (int i = 0; i < p->n; i++) n += p->workers[i].scratch.size;
	return n;
}

void *rm_pool_scratch(rm_pool *p, int index, size_t bytes) { return grow(&p->workers[index].scratch, bytes); }

int rm_pool_reserve(rm_pool *p, size_t bytes) {
	for (int i = 0; i < p->n; i++) {
		if (!grow(&p->workers[i].scratch, bytes)) return RM_E_MEMORY;
	}
	return RM_OK;
}

void *rm_pool_shared(rm_pool *p, size_t bytes) { return grow(&p->shared, bytes); }
