// The cost of the status check: blocks of exchanges with and without it,
// alternately, in one run. Prints the median of each, in nanoseconds per
// exchange.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check_loop.h"
#include "setup.h"

enum { SIZE = 16384, BLOCK = 200, BLOCKS = 1001 };

static int by_size(const void *x, const void *y) {
	double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

static double block(struct side *s, int (*f)(struct side *)) {
	struct timespec t, u;
	clock_gettime(CLOCK_MONOTONIC, &t);
	for (int i = 0; i < BLOCK; i++) {
		CHECK(f(s) == 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &u);
	return ((double)(u.tv_sec - t.tv_sec) * 1e9 + (double)(u.tv_nsec - t.tv_nsec)) / BLOCK;
}

int main(void) {
	char err[256];
	int e, type;
	uint8_t gid[16];
	CHECK(rm_fake_script("device a\n", err, sizeof err) == 0);
	CHECK((lib = rmv_open("", err, sizeof err)) != NULL);
	struct rmv_context *ctx = rmv_open_device(lib, "a", &e);
	CHECK(ctx != NULL && rmv_query_gid(lib, ctx, 1, 1, gid, &type) == 0);
	struct rmv_pd *pd = rmv_alloc_pd(lib, ctx, &e);
	struct side s;
	memset(&s, 0, sizeof s);
	CHECK(pd != NULL && (s.cq = rmv_create_cq(lib, ctx, 64, &e)) != NULL);
	uint8_t *mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mem != MAP_FAILED);
	mem = (uint8_t *)(((uintptr_t)mem + 16383) & ~(uintptr_t)16383);
	struct rmv_mr *mr = rmv_reg_mr(lib, pd, mem, 2 * PEERS * SIZE, 7, &e);
	CHECK(mr != NULL);
	for (int p = 0; p < PEERS; p++) {
		struct rmv_qp_cap cap = {16, 16, 1, 1, 0};
		struct rmv_qp *a = rmv_create_qp(lib, pd, s.cq, s.cq, RMV_QPT_UC, &cap, &e);
		struct rmv_qp *b = rmv_create_qp(lib, pd, s.cq, s.cq, RMV_QPT_UC, &cap, &e);
		CHECK(a != NULL && b != NULL);
		for (int state = 1; state <= 3; state++) {
			move(a, b->qp_num, gid, state);
			move(b, a->qp_num, gid, state);
		}
		s.peer[p].a = a;
		s.peer[p].b = b;
		s.peer[p].from = (struct rmv_sge){(uint64_t)(uintptr_t)mem + (uint64_t)(2 * p) * SIZE, SIZE, mr->lkey};
		s.peer[p].to = (struct rmv_sge){(uint64_t)(uintptr_t)mem + (uint64_t)(2 * p + 1) * SIZE, SIZE, mr->lkey};
		s.peer[p].send.sg_list = &s.peer[p].from;
		s.peer[p].send.num_sge = s.peer[p].recv.num_sge = 1;
		s.peer[p].send.opcode = RMV_WR_SEND;
		s.peer[p].send.send_flags = RMV_SEND_SIGNALED;
		s.peer[p].recv.sg_list = &s.peer[p].to;
	}
	static double with[BLOCKS], without[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) { // the order alternates
		if (i % 2 == 0) {
			with[i] = block(&s, checked);
		}
		without[i] = block(&s, unchecked);
		if (i % 2 == 1) {
			with[i] = block(&s, checked);
		}
	}
	qsort(with, BLOCKS, sizeof with[0], by_size);
	qsort(without, BLOCKS, sizeof without[0], by_size);
	printf("%.1f %.1f %.1f %.1f\n", with[BLOCKS / 2], without[BLOCKS / 2], with[BLOCKS / 10], without[BLOCKS / 10]);
	return 0;
}
