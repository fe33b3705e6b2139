// Drives the library from C, with the loader and the hot path of the binding,
// so that both and the library run under a sanitizer: several rails, a thread
// at each end, streams in both directions, then each fault once.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "setup.h"

int rm_fake_reset(void);
int64_t rm_fake_count(const char *what);

enum { DEPTH = 8, SIZE = 8192, COUNT = 400, RAILS = 3, ROOM = 2 * DEPTH * SIZE };

struct end {
	struct rmv_context *ctx;
	struct rmv_pd *pd;
	struct rmv_mr *mr;
	struct rmv_cq *cq;
	struct rmv_qp *qp;
	uint8_t *mem;
	pthread_t thread;
};

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void open_end(struct end *e, const char *name) {
	int err = 0;
	memset(e, 0, sizeof *e);
	CHECK((e->ctx = rmv_open_device(lib, name, &err)) != NULL);
	CHECK((e->pd = rmv_alloc_pd(lib, e->ctx, &err)) != NULL);
	e->mem = mmap(NULL, ROOM + 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(e->mem != MAP_FAILED);
	uint8_t *at = (uint8_t *)(((uintptr_t)e->mem + 16383) & ~(uintptr_t)16383);
	CHECK((e->mr = rmv_reg_mr(lib, e->pd, at, ROOM, 7, &err)) != NULL);
	CHECK((e->cq = rmv_create_cq(lib, e->ctx, 4 * DEPTH + 1, &err)) != NULL);
	struct rmv_qp_cap cap = {2 * DEPTH, 2 * DEPTH, 1, 1, 0};
	CHECK((e->qp = rmv_create_qp(lib, e->pd, e->cq, e->cq, RMV_QPT_UC, &cap, &err)) != NULL);
}

static void join(struct end *a, struct end *b) {
	uint8_t gid_a[16], gid_b[16];
	int type;
	CHECK(rmv_query_gid(lib, a->ctx, 1, 1, gid_a, &type) == 0);
	CHECK(rmv_query_gid(lib, b->ctx, 1, 1, gid_b, &type) == 0);
	for (int s = RMV_QPS_INIT; s <= RMV_QPS_RTS; s++) {
		move(a->qp, b->qp->qp_num, gid_b, s);
		move(b->qp, a->qp->qp_num, gid_a, s);
	}
}

static void close_end(struct end *e) {
	CHECK(rmv_destroy_qp(lib, e->qp) == 0);
	CHECK(rmv_dereg_mr(lib, e->mr) == 0);
	CHECK(rmv_destroy_cq(lib, e->cq) == 0);
	CHECK(rmv_dealloc_pd(lib, e->pd) == 0);
	CHECK(rmv_close_device(lib, e->ctx) == 0);
	munmap(e->mem, ROOM + 16384);
}

static int post(struct end *e, int send, uint64_t id, int slot, int *err) {
	struct rmv_request r = {id, (uint64_t)(uintptr_t)e->mr->addr + (uint64_t)((send ? DEPTH : 0) + slot % DEPTH) * SIZE, SIZE, e->mr->lkey};
	return rmv_post(e->qp, send, &r, 1, err);
}

static void *stream(void *arg) {
	struct end *e = arg;
	uint8_t *mem = e->mr->addr;
	int sent = 0, done = 0, got = 0, err;
	double until = seconds() + 60;
	for (int i = 0; i < DEPTH; i++) {
		CHECK(post(e, 0, (uint64_t)i, i, &err) == 1);
	}
	while (done < COUNT || got < COUNT) {
		if (sent < COUNT && sent - done < DEPTH) {
			memset(mem + (DEPTH + sent % DEPTH) * SIZE, sent & 0xff, SIZE);
			CHECK(post(e, 1, 1u << 20 | (uint64_t)sent, sent, &err) == 1);
			sent++;
		}
		struct rmv_wc wc[4];
		int n = rmv_poll_cq(e->cq, 4, wc);
		CHECK(!rmv_wc_bad(n, 4, wc));
		CHECK(n > 0 || seconds() < until);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id >> 20) {
				CHECK((int)(wc[i].wr_id & 0xfffff) == done);
				done++;
				continue;
			}
			CHECK((int)wc[i].wr_id == got && wc[i].byte_len == SIZE);
			const uint8_t *m = mem + got % DEPTH * SIZE;
			CHECK(m[0] == (got & 0xff) && m[SIZE - 1] == (got & 0xff));
			got++;
			if (got + DEPTH <= COUNT) {
				CHECK(post(e, 0, (uint64_t)(got + DEPTH - 1), got - 1, &err) == 1);
			}
		}
	}
	return NULL;
}

static void streams(const char *words) {
	char text[1024] = "", err[256], name[16];
	struct end e[2 * RAILS];
	for (int r = 0; r < RAILS; r++) {
		char line[256];
		snprintf(line, sizeof line, "device a%d host=0 %s\ndevice b%d host=1 %s\ncable a%d b%d\n", r, words, r, words, r, r);
		strcat(text, line);
	}
	CHECK(rm_fake_script(text, err, sizeof err) == 0);
	for (int r = 0; r < 2 * RAILS; r++) {
		snprintf(name, sizeof name, "%c%d", r % 2 ? 'b' : 'a', r / 2);
		open_end(&e[r], name);
	}
	for (int r = 0; r < 2 * RAILS; r += 2) {
		join(&e[r], &e[r + 1]);
	}
	for (int r = 0; r < 2 * RAILS; r++) {
		CHECK(pthread_create(&e[r].thread, NULL, stream, &e[r]) == 0);
	}
	for (int r = 0; r < 2 * RAILS; r++) {
		pthread_join(e[r].thread, NULL);
	}
	CHECK(rm_fake_count("messages") == 2 * RAILS * COUNT);
	for (int r = 0; r < 2 * RAILS; r++) {
		close_end(&e[r]);
	}
	CHECK(rm_fake_count("qps") == 0 && rm_fake_count("mrs") == 0);
	CHECK(rm_fake_reset() == 0);
}

// fault makes one thing go wrong among six messages; whatever the result, the
// library and its teardown must survive it.
static void fault(const char *line) {
	char text[512], err[256];
	struct end a, b;
	snprintf(text, sizeof text, "device a\ndevice b host=1\ncable a b\nfault %s\n", line);
	CHECK(rm_fake_script(text, err, sizeof err) == 0);
	open_end(&a, "a");
	open_end(&b, "b");
	join(&a, &b);
	struct rmv_wc wc[8];
	int e, seen = 0;
	for (int i = 0; i < 6; i++) {
		post(&b, 0, (uint64_t)i, i, &e);
		post(&a, 1, (uint64_t)(100 + i), i, &e);
		for (int k = 0; k < 2; k++) {
			int n = rmv_poll_cq(k ? a.cq : b.cq, 6, wc), bad = rmv_wc_bad(n, 6, wc);
			seen += bad;
			CHECK(!bad || (n < 0 || n > 6) == (rmv_wc_cause(n, 6, wc) < 0));
		}
	}
	CHECK(rm_fake_count("fault:0") > 0);
	(void)seen;
	close_end(&b);
	close_end(&a);
	CHECK(rm_fake_reset() == 0);
}

// refusals: Apple's posts fail with a negative errno, others with a positive one.
static void refusals(const char *words, int sign) {
	char text[512], err[256];
	struct end a, b;
	snprintf(text, sizeof text, "device a %s\ndevice b host=1 %s\ncable a b\n", words, words);
	CHECK(rm_fake_script(text, err, sizeof err) == 0);
	open_end(&a, "a");
	open_end(&b, "b");
	struct rmv_sge sge = {(uint64_t)(uintptr_t)a.mr->addr, 64, a.mr->lkey};
	struct rmv_recv_wr r = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(a.ctx->ops.post_recv(a.qp, &r, &bad) == sign * EINVAL && bad == &r);
	join(&a, &b);
	int rc = 0;
	for (int i = 0; rc == 0 && i < 5000; i++) {
		rc = a.ctx->ops.post_recv(a.qp, &r, &bad);
	}
	CHECK(rc == sign * ENOMEM && bad == &r);
	close_end(&b);
	close_end(&a);
	CHECK(rm_fake_reset() == 0);
}

int main(int argc, char **argv) {
	char err[256];
	CHECK(argc == 2);
	CHECK((lib = rmv_open(argv[1], err, sizeof err)) != NULL);
	refusals("", -1);
	refusals("negative=0", 1);
	streams("");
	streams("late=1 poison=1");
	streams("latency_ns=2000 mbps=4000");
	static const char *const faults[] = {
	    "device=a on=send nth=2 do=status:12",
	    "device=a on=send nth=2 do=status:1 flush_first=1",
	    "device=a on=send nth=2 do=drop",
	    "device=a on=send nth=2 do=swallow",
	    "device=a on=send nth=2 do=dup",
	    "device=a on=send nth=2 do=delay:100",
	    "device=a on=send nth=2 do=hold:1",
	    "device=a on=send nth=2 do=corrupt:8191",
	    "device=a on=send nth=2 do=corrupt:99999",
	    "device=a on=send nth=2 do=kill_direction",
	    "device=a on=send nth=2 do=kill_rail",
	    "device=a on=send nth=2 do=kill_host",
	    "device=a on=send nth=2 do=port_down",
	    "device=b on=recv nth=2 do=status:4 vendor=9",
	    "device=b on=recv nth=2 do=swallow",
	    "device=b on=recv nth=2 do=dup",
	    "device=b on=recv nth=2 do=delay:100",
	    "device=b on=recv nth=2 do=corrupt:0",
	    "device=b on=recv nth=2 do=kill_host",
	    "device=b on=poll nth=2 do=negative",
	    "device=b on=poll nth=2 do=more:3",
	    "device=b on=poll nth=2 do=overrun",
	    "device=b on=poll_any prob=5000 seed=3 count=all do=negative",
	    "device=a on=post_send nth=2 do=errno:-12",
	    "device=b on=post_recv nth=2 do=errno:22",
	};
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		fault(faults[i]);
	}
	rmv_close(lib);
	return 0;
}
