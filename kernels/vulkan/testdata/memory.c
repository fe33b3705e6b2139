// The memory of a device, tried without Go: compiled and run by TestMemory with the number
// of the device. It prints what is wrong.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../internal.h"

static int wrong;
static void check(int line, int fine, const char *text) {
	if (fine) return;
	printf("line %d: %s\n", line, text);
	wrong = 1;
}
#define CHECK(fine, text) check(__LINE__, fine, text)

static uint64_t random64(void) {
	static uint64_t x = 88172645463325252u;
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static int all(const rmg_buffer *b, uint8_t value) {
	for (uint64_t i = 0; i < b->length; i++)
		if (((uint8_t *)b->contents)[i] != value) return 0;
	return 1;
}

// Buffers of random sizes come and go; none overlaps another, all begin with zeros.
static void allocations(rmvk_device *d) {
	enum { HELD = 64 };
	rmg_buffer held[HELD] = {{NULL, NULL, 0}};
	for (int turn = 0; turn < 2000; turn++) {
		int i = (int)(random64() % HELD);
		if (held[i].object != NULL) {
			CHECK(all(&held[i], (uint8_t)(i + 1)), "a buffer was overwritten by another");
			rmg_release(&d->head, held[i]);
			held[i].object = NULL;
			continue;
		}
		uint64_t n = turn % 100 == 0 ? 20 << 20 : 1 + random64() % (turn % 2 ? 300 : 100000);
		held[i] = rmg_alloc(&d->head, n, turn & 1);
		CHECK(held[i].object != NULL, d->why);
		if (held[i].object == NULL) return;
		CHECK(held[i].length == n && (uintptr_t)held[i].contents % 64 == 0, "length or alignment");
		CHECK(all(&held[i], 0), "new memory is not zero");
		memset(held[i].contents, i + 1, n);
	}
	for (int i = 0; i < HELD; i++) rmg_release(&d->head, held[i]);
	for (int k = 0; k < RMV_KINDS; k++) CHECK(d->arenas[k] == NULL && d->used[k] == 0, "an arena was left");
}

// Weights imported, or copied as on a card: through the staging buffer, in several pieces.
static void weights(rmvk_device *d, int card) {
	uint64_t n = 40 << 20;
	uint8_t *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED, "mmap");
	for (uint64_t i = 0; i < n; i++) memory[i] = (uint8_t)(i * 31 >> 8 ^ i);
	if (card) d->info.unified = d->info.imports = 0;
	rmg_buffer b = rmg_wrap(&d->head, memory, n);
	CHECK(b.object != NULL, d->why);
	if (b.object == NULL) return;
	CHECK(card == (b.contents != memory), card ? "not copied" : "not imported");
	CHECK(memcmp(b.contents, memory, n) == 0, "the copy differs");
	rmg_release(&d->head, b);
	munmap(memory, n);
}

int main(int argc, char **argv) {
	char error[1024] = "";
	rmvk_info info;
	rmvk_device *d = argc < 2 ? NULL : rmvk_open(atoi(argv[1]), &info, error, sizeof error);
	if (d == NULL) {
		printf("%s\n", error);
		return 1;
	}
	allocations(d);
	weights(d, 0);
	weights(d, 1);
	rmg_buffer b = rmg_alloc(&d->head, info.max_buffer + 1, 0);
	CHECK(b.object == NULL && strstr(d->why, "the largest buffer of the GPU") != NULL, "a buffer that is too large");
	rmvk_close(d);
	return wrong;
}
