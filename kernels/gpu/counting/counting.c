//go:build cgo && (linux || darwin)

#include "counting.h"

#include <stdlib.h>
#include <sys/mman.h>

// An object of a buffer: how much of its memory is mapped here, 0 for the caller's.
typedef struct {
	uint64_t mapped;
} object;

static rmg_buffer buffer_of(void *memory, uint64_t n, uint64_t mapped) {
	rmg_buffer b = {NULL, NULL, 0};
	object *o = malloc(sizeof *o);
	if (o == NULL) return b;
	o->mapped = mapped;
	b.object = o;
	b.contents = memory;
	b.length = n;
	return b;
}

// Pages of the mapping cost nothing until something touches them.
static rmg_buffer alloc_buffer(rmg_device *d, uint64_t n, int host) {
	(void)d, (void)host;
	void *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
	rmg_buffer b = {NULL, NULL, 0};
	if (memory == MAP_FAILED) return b;
	b = buffer_of(memory, n, n);
	if (b.object == NULL) munmap(memory, n);
	return b;
}

static rmg_buffer wrap_memory(rmg_device *d, void *memory, uint64_t n) {
	(void)d;
	return buffer_of(memory, n, 0);
}

static void release_buffer(rmg_device *d, rmg_buffer b) {
	(void)d;
	object *o = b.object;
	if (o->mapped > 0) munmap(b.contents, o->mapped);
	free(o);
}

static int encode(rmg_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	(void)d, (void)list, (void)order, (void)n, (void)label, (void)error, (void)size;
	return 0;
}

static int commit(rmg_device *d, char *error, size_t size) {
	(void)d, (void)error, (void)size;
	return 0;
}

static void drop(rmg_device *d) { (void)d; }

static int wait_for_all(rmg_device *d, rmg_wait_policy policy, char *error, size_t size) {
	(void)d, (void)policy, (void)error, (void)size;
	return 0;
}

static const rmg_driver driver = {.alloc = alloc_buffer, .wrap = wrap_memory, .release = release_buffer, .encode = encode, .commit = commit, .drop = drop, .wait = wait_for_all};

rmg_device *rmc_open(void) {
	rmg_device *d = calloc(1, sizeof *d);
	if (d != NULL) d->driver = &driver;
	return d;
}

void rmc_close(rmg_device *d) { free(d); }
