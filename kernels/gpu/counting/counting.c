//go:build cgo && (linux || darwin)

#include "counting.h"

#include <stdlib.h>
#include <sys/mman.h>

// Bytes from which a buffer of weights counts: a dispatch that binds a smaller one, such as a
// table or the weights of a norm, waits more than it reads.
enum { HEAVY = 1 << 20 };

typedef struct {
	uint64_t length; // of the mapping, 0 for the caller's memory
	int heavy;       // weights of at least HEAVY bytes
} object;

static rmg_buffer buffer_of(void *memory, uint64_t n, uint64_t mapped, int heavy) {
	rmg_buffer b = {NULL, NULL, 0};
	object *o = malloc(sizeof *o);
	if (o == NULL) return b;
	*o = (object){mapped, heavy};
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
	b = buffer_of(memory, n, n, 0);
	if (b.object == NULL) munmap(memory, n);
	return b;
}

static rmg_buffer wrap_memory(rmg_device *d, void *memory, uint64_t n) {
	(void)d;
	return buffer_of(memory, n, 0, n >= HEAVY);
}

static void release_buffer(rmg_device *d, rmg_buffer b) {
	(void)d;
	object *o = b.object;
	if (o->length > 0) munmap(b.contents, o->length);
	free(o);
}

static int heavy(const rmg_command *c) {
	for (uint32_t i = 0; i < c->bindings; i++)
		if (((const object *)c->binding[i].object)->heavy) return 1;
	return 0;
}

static int encode(rmg_device *device, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	(void)label, (void)error, (void)size;
	rmc_device *d = (rmc_device *)device;
	rmc_counts *c = &d->encoded;
	*c = d->counts;
	c->buffers++;
	for (size_t i = 0; i < n;) {
		int reads = 0;
		do {
			reads |= heavy(&list[order[i]]);
			c->of[list[order[i]].pipeline]++;
			c->dispatches++;
			i++;
		} while (i < n && !list[order[i]].barrier);
		c->stages++;
		if (!reads) c->light++;
	}
	return 0;
}

static int commit(rmg_device *device, char *error, size_t size) {
	(void)error, (void)size;
	rmc_device *d = (rmc_device *)device;
	d->counts = d->encoded;
	d->running = 1;
	return 0;
}

static void drop(rmg_device *d) { (void)d; }

static int wait_for_all(rmg_device *device, rmg_wait_policy policy, char *error, size_t size) {
	(void)policy, (void)error, (void)size;
	rmc_device *d = (rmc_device *)device;
	d->counts.waits += (uint64_t)d->running;
	d->running = 0;
	return 0;
}

static const rmg_driver driver = {.alloc = alloc_buffer, .wrap = wrap_memory, .release = release_buffer, .encode = encode, .commit = commit, .drop = drop, .wait = wait_for_all};

rmc_device *rmc_open(void) {
	rmc_device *d = calloc(1, sizeof *d);
	if (d != NULL) d->base.driver = &driver;
	return d;
}

void rmc_close(rmc_device *d) { free(d); }
