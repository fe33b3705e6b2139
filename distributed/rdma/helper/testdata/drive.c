// Drives the rings from C, so that both sides run under a sanitizer. One thread is the
// server, another the helper's loop, over a device that completes what is posted. With
// an argument it only measures how long a request and its completion take.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../rm_loop.h"
#include "../rm_server.h"

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

enum { DEPTH = 64, BYTES = 1 << 16, LKEY = 7, REFUSED = 4095 };

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The device. Only the loop's thread touches it. It completes requests at once and
// refuses those of REFUSED bytes.
static uint8_t here[BYTES], there[BYTES];
static struct rmv_wc done[DEPTH];
static unsigned head, tail;
static int broken; // result of polls, 0 for none

static int complete(uint64_t id, const struct rmv_sge *s, uint32_t opcode) {
	CHECK(s->addr >= (uint64_t)(uintptr_t)here && s->addr + s->length <= (uint64_t)(uintptr_t)here + BYTES && s->lkey == LKEY);
	CHECK(tail - head < DEPTH);
	done[tail++ % DEPTH] = (struct rmv_wc){.wr_id = id, .opcode = opcode, .byte_len = s->length, .qp_num = (uint32_t)(s->addr - (uint64_t)(uintptr_t)here)};
	return 0;
}

static int device_send(struct rmv_qp *qp, struct rmv_send_wr *wr, struct rmv_send_wr **bad) {
	(void)qp;
	if (wr->sg_list->length == REFUSED) {
		*bad = wr;
		return -EINVAL;
	}
	return complete(wr->wr_id, wr->sg_list, RMV_WC_SEND);
}

static int device_recv(struct rmv_qp *qp, struct rmv_recv_wr *wr, struct rmv_recv_wr **bad) {
	(void)qp;
	if (wr->sg_list->length == REFUSED) {
		*bad = wr;
		return ENOMEM;
	}
	return complete(wr->wr_id, wr->sg_list, RMV_WC_RECV);
}

// A post between the loop's check of the rings and its sleep: in which pass after 4 ms
// without work it happens (0: none), and whether it was done.
static atomic_int late_pass, late_done;
static int64_t worked;
static int post(int send, uint64_t id, uint32_t off, uint32_t n);

static int device_poll(struct rmv_cq *cq, int n, struct rmv_wc *wc) {
	(void)cq;
	if (head != tail) {
		worked = now_ns();
	}
	if (atomic_load(&late_pass) > 0 && now_ns() - worked > 4000000 && atomic_fetch_sub(&late_pass, 1) == 1) {
		CHECK(post(1, 1, 0, 64) == 0); // for the server, which waits
		atomic_store(&late_done, 1);
	}
	if (broken != 0) {
		return broken;
	}
	int got = 0;
	while (got < n && head != tail) {
		wc[got++] = done[head++ % DEPTH];
	}
	return got;
}

static struct rmv_context context = {.ops = {.poll_cq = device_poll, .post_send = device_send, .post_recv = device_recv}};
static struct rmv_cq device_cq = {.context = &context};
static struct rmv_qp device_qp = {.context = &context, .qp_num = 42};

static struct rmh_bell bell;
static struct rmh_loop *loop;
static struct rmh_device *dev;
static struct rmh_server_qp *qp;
static struct rmh_server_cq *cq;
static pthread_t thread;
static int sockets[2];
static void *rings[2];

static void *run(void *unused) {
	(void)unused;
	rmh_loop_run(loop);
	return NULL;
}

static void *ring(size_t bytes) {
	void *p = aligned_alloc(RMH_LINE, bytes);
	CHECK(p != NULL);
	memset(p, 0, bytes);
	return p;
}

static void begin(void) {
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	memset(&bell, 0, sizeof bell);
	head = tail = 0;
	broken = 0;
	CHECK((loop = rmh_loop_new(&bell, sockets[1], 50000)) != NULL);
	CHECK((dev = rmh_device_new(&bell, sockets[0])) != NULL);
	for (int i = 0; i < 2; i++) {
		rings[i] = ring(rmh_ring_bytes(DEPTH));
	}
	CHECK((qp = rmh_server_qp_new(dev, rings[0], DEPTH, 42)) != NULL);
	CHECK((cq = rmh_server_cq_new(dev, rings[1], DEPTH)) != NULL);
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	// Added while it runs.
	CHECK(rmh_loop_add_mr(loop, LKEY, (uint64_t)(uintptr_t)there, here, BYTES) == 0);
	CHECK(rmh_loop_add_cq(loop, &device_cq, rings[1], DEPTH) == 0);
	CHECK(rmh_loop_add_qp(loop, &device_qp, &device_cq, &device_cq, rings[0], DEPTH) == 0);
}

// finish ends the loop as the end of the server does (close), or as the helper does.
static void finish(int server) {
	if (server) {
		close(sockets[0]);
		// Whether the loop sleeps or not, it finds the end when it next sleeps.
	} else {
		rmh_loop_remove_qp(loop, &device_qp);
		rmh_loop_remove_cq(loop, &device_cq);
		rmh_loop_remove_mr(loop, LKEY);
		rmh_loop_stop(loop);
		close(sockets[0]);
	}
	pthread_join(thread, NULL);
	close(sockets[1]);
	rmh_loop_free(loop);
	free(qp);
	free(cq);
	free(dev);
	free(rings[0]);
	free(rings[1]);
}

static int post(int send, uint64_t id, uint32_t off, uint32_t n) {
	struct rmv_sge s = {.addr = (uint64_t)(uintptr_t)there + off, .length = n, .lkey = LKEY};
	int err, posted;
	if (send) {
		struct rmv_send_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = RMV_WR_SEND, .send_flags = RMV_SEND_SIGNALED};
		posted = rmv_post_send(&qp->v, &wr, 1, &err);
	} else {
		struct rmv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};
		posted = rmv_post_recv(&qp->v, &wr, 1, &err);
	}
	CHECK(posted == (err == 0));
	return err;
}

static int poll_some(struct rmv_wc *wc, int n) {
	int64_t end = now_ns() + 20000000000;
	int got;
	while ((got = rmv_poll_cq(&cq->v, n, wc)) == 0) {
		CHECK(now_ns() < end);
		rmh_relax();
	}
	return got;
}

// stream: bursts of requests of both kinds come back complete and in order.
static void stream(int count) {
	uint64_t next = 1, seen = 1;
	struct rmv_wc wc[8];
	while (seen <= (uint64_t)count) {
		while (next <= (uint64_t)count && next - seen < DEPTH / 2) {
			CHECK(post(next % 3 != 0, next, (uint32_t)(next % 1000), (uint32_t)(next % 512 + 1)) == 0);
			next++;
		}
		int got = poll_some(wc, 8);
		CHECK(got > 0);
		for (int i = 0; i < got; i++, seen++) {
			CHECK(wc[i].wr_id == seen && wc[i].byte_len == seen % 512 + 1 && wc[i].qp_num == seen % 1000);
			CHECK(wc[i].opcode == (seen % 3 != 0 ? RMV_WC_SEND : RMV_WC_RECV));
		}
	}
}

// wakes posts at about the time when the loop falls asleep, without a poll that would
// wake it too. Each post must reach the device.
static void wakes(int count) {
	struct rmv_wc wc[8];
	int slept = 0;
	for (int i = 0; i < count; i++) {
		// Every other post comes while it sleeps, the others at any time around that.
		int64_t at = now_ns(), wait = at + 4500000 + (int64_t)(i * 7919 % 4000) * 1000;
		while (i % 2 == 0 ? !atomic_load(&bell.asleep) : now_ns() < wait) {
			CHECK(now_ns() < at + 20000000000);
			sched_yield();
		}
		slept += (int)atomic_load(&bell.asleep);
		CHECK(post(1, (uint64_t)i + 1, 0, 64) == 0);
		int64_t end = now_ns() + 20000000000;
		while (atomic_load(&qp->ring->taken) != qp->tail) {
			CHECK(now_ns() < end);
			sched_yield();
		}
		CHECK(poll_some(wc, 8) == 1 && wc[0].wr_id == (uint64_t)i + 1);
	}
	// Without posts it sleeps.
	int64_t end = now_ns() + 20000000000;
	while (!atomic_load(&bell.asleep)) {
		CHECK(now_ns() < end);
		sched_yield();
	}
	printf("%d of %d posts found the loop asleep\n", slept, count);
}

// late posts in each pass before the loop sleeps. The loop must not miss the last post,
// which comes after its check of the ring and before it counts as asleep.
static void late(void) {
	struct rmv_wc wc[8];
	int64_t end = now_ns() + 20000000000;
	int k = 0;
	for (int slept = 0; !slept;) {
		CHECK(post(1, 1, 0, 64) == 0 && poll_some(wc, 8) == 1); // it is awake
		atomic_store(&late_done, 0);
		atomic_store(&late_pass, ++k);
		while (!atomic_load(&late_done) && !slept) {
			CHECK(now_ns() < end);
			slept = (int)atomic_load(&bell.asleep) && !atomic_load(&late_done);
			sched_yield();
		}
		if (slept && k > 1) {
			break;
		}
		if (slept) { // its thread did not run in the last millisecond before its sleep
			atomic_store(&late_pass, 0);
			CHECK(now_ns() < end);
			k = slept = 0;
			continue;
		}
		while (atomic_load(&qp->ring->taken) != qp->tail) {
			CHECK(now_ns() < end);
			sched_yield();
		}
		CHECK(poll_some(wc, 8) == 1);
	}
	atomic_store(&late_pass, 0);
	printf("%d passes before the loop sleeps\n", k - 1);
}

static void refusals(void) {
	struct rmv_wc wc[8];
	uint64_t base = (uint64_t)(uintptr_t)there;
	// A post that is waited for has its own result, and the queue continues.
	CHECK(rmh_post_sync(qp, 1, 1, base, REFUSED, LKEY, 20000000000) == EINVAL);
	CHECK(rmh_post_sync(qp, 0, 2, base, REFUSED, LKEY, 20000000000) == ENOMEM);
	CHECK(rmh_post_sync(qp, 1, 3, base, 64, LKEY, 20000000000) == 0);
	CHECK(poll_some(wc, 8) == 1 && wc[0].wr_id == 3);
	// Memory outside the region, and with an unknown key.
	CHECK(rmh_post_sync(qp, 1, 4, base - 1, 64, LKEY, 20000000000) == EINVAL);
	CHECK(rmh_post_sync(qp, 1, 5, base + BYTES - 63, 64, LKEY, 20000000000) == EINVAL);
	CHECK(rmh_post_sync(qp, 1, 6, base, 64, LKEY + 1, 20000000000) == EINVAL);
	CHECK(rmh_post_sync(qp, 1, 7, base + BYTES - 64, 64, LKEY, 20000000000) == 0);
	CHECK(poll_some(wc, 8) == 1 && wc[0].wr_id == 7);
	// After a refused post that is not waited for, earlier posts complete, then the
	// queue is broken.
	CHECK(post(1, 8, 0, 64) == 0 && post(0, 9, 0, REFUSED) == 0 && post(1, 10, 0, 64) == 0);
	CHECK(poll_some(wc, 8) == 1 && wc[0].wr_id == 8);
	CHECK(poll_some(wc, 8) == -ENOMEM);
	CHECK(rmh_trouble_of(cq) == rmh_trouble(RMH_POST_RECV, ENOMEM, 42));
}

static void polls(int result, int want) {
	struct rmv_wc wc[8];
	begin();
	rmh_loop_remove_cq(loop, &device_cq); // the loop does not look at it meanwhile
	broken = result;
	CHECK(rmh_loop_add_cq(loop, &device_cq, rings[1], DEPTH) == 0);
	CHECK(poll_some(wc, 8) == want);
	CHECK(rmh_trouble_of(cq) == rmh_trouble(RMH_POLL, 0, (uint32_t)result));
	finish(0);
}

// full: a ring without a consumer refuses requests, as a full queue does.
static void full(void) {
	begin();
	rmh_loop_remove_qp(loop, &device_qp);
	for (uint64_t i = 0; i < DEPTH; i++) {
		CHECK(post(1, i + 1, 0, 64) == 0);
	}
	CHECK(post(1, 1, 0, 64) == ENOMEM);
	CHECK(rmh_settle(qp, 1000) == ETIMEDOUT);
	rmh_device_lost(dev);
	CHECK(post(1, 1, 0, 64) == EIO);
	CHECK(rmh_settle(qp, 1000) == EIO);
	struct rmv_wc wc[8];
	CHECK(poll_some(wc, 8) == -EIO);
	finish(0);
}

static int smaller(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

static void measure(void) {
	enum { N = 200000 };
	static int64_t took[N];
	struct rmv_wc wc[8];
	for (int i = 0; i < N; i++) {
		int64_t at = now_ns();
		CHECK(post(1, (uint64_t)i + 1, 0, 64) == 0);
		while (rmv_poll_cq(&cq->v, 8, wc) == 0) {
			rmh_relax();
		}
		took[i] = now_ns() - at;
	}
	qsort(took, N, sizeof took[0], smaller);
	printf("post to completion through the rings, ns: fastest %ld, tenth %ld, median %ld\n", (long)took[0], (long)took[N / 10], (long)took[N / 2]);
}

int main(int argc, char **argv) {
	(void)argv;
	if (argc > 1) {
		begin();
		measure();
		finish(0);
		return 0;
	}
	begin();
	stream(20000);
	wakes(200);
	late();
	finish(1);
	begin();
	refusals();
	finish(0);
	polls(-5, -5);
	polls(17, 0x7fffffff);
	full();
	return 0;
}
