#include "rm_server.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 // macOS: SO_NOSIGPIPE is set on the socket
#endif

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// wake wakes the helper if it sleeps. Errors are ignored, because a full socket already has
// enough bytes to wake it, and the end of a helper is noticed elsewhere.
__attribute__((noinline, cold)) static void wake(struct rmh_device *d) {
	if (atomic_exchange(&d->bell->asleep, 0) != 0) {
		ssize_t n = send(d->socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		(void)n;
	}
}

// free_slot returns the next slot to fill, NULL if the helper has not taken enough yet.
static inline struct rmh_request *free_slot(struct rmh_server_qp *q) {
	if (q->tail - q->taken >= q->size) {
		q->taken = atomic_load_explicit(&q->ring->taken, memory_order_acquire);
		if (q->tail - q->taken >= q->size) {
			return NULL;
		}
	}
	return &rmh_requests(q->ring)[q->tail & (q->size - 1)];
}

static inline void publish(struct rmh_server_qp *q, struct rmh_request *r) {
	q->tail++;
	atomic_store(&r->turn, q->tail); // sequentially consistent: see the bell
}

// announce ends a series of publications: see the bell in rm_ring.h.
static inline void announce(struct rmh_device *d) {
	if (__builtin_expect(atomic_load(&d->bell->asleep) != 0, 0)) {
		wake(d);
	}
}

static int post_send(struct rmv_qp *qp, struct rmv_send_wr *wr, struct rmv_send_wr **bad) {
	struct rmh_server_qp *q = (struct rmh_server_qp *)qp;
	int err = atomic_load_explicit(&q->device->lost, memory_order_relaxed) ? EIO : 0;
	for (; wr != NULL && err == 0; wr = wr->next) {
		struct rmh_request *r = free_slot(q);
		if (r == NULL || wr->num_sge != 1) {
			err = r == NULL ? ENOMEM : EINVAL;
			break;
		}
		r->wr_id = wr->wr_id;
		r->addr = wr->sg_list->addr;
		r->length = wr->sg_list->length;
		r->lkey = wr->sg_list->lkey;
		r->opcode = wr->opcode;
		r->flags = wr->send_flags;
		r->remote_addr = wr->remote_addr;
		r->rkey = wr->rkey;
		r->sync = 0;
		publish(q, r);
	}
	*bad = err == 0 ? *bad : wr;
	announce(q->device);
	return err;
}

static int post_recv(struct rmv_qp *qp, struct rmv_recv_wr *wr, struct rmv_recv_wr **bad) {
	struct rmh_server_qp *q = (struct rmh_server_qp *)qp;
	int err = atomic_load_explicit(&q->device->lost, memory_order_relaxed) ? EIO : 0;
	for (; wr != NULL && err == 0; wr = wr->next) {
		struct rmh_request *r = free_slot(q);
		if (r == NULL || wr->num_sge != 1) {
			err = r == NULL ? ENOMEM : EINVAL;
			break;
		}
		r->wr_id = wr->wr_id;
		r->addr = wr->sg_list->addr;
		r->length = wr->sg_list->length;
		r->lkey = wr->sg_list->lkey;
		r->opcode = RMH_RECV;
		r->sync = 0;
		publish(q, r);
	}
	*bad = err == 0 ? *bad : wr;
	announce(q->device);
	return err;
}

// broken returns the result of a poll when trouble has been reported. It is never 0, whatever
// the helper has written.
static int broken(uint64_t trouble) {
	if (trouble >> 56 == RMH_POLL) {
		// If the device returned too many completions, return more than any caller requests.
		int result = (int)(uint32_t)trouble;
		return result < 0 ? result : INT_MAX;
	}
	int err = (int)(trouble >> 32 & 0xffff);
	return err != 0 ? -err : -EIO;
}

// empty returns the result of a poll without completions: 0, or why none will follow.
static int empty(struct rmh_server_cq *c) {
	struct rmh_device *d = c->device;
	uint64_t trouble = atomic_load_explicit(&c->ring->trouble, memory_order_acquire);
	if (__builtin_expect(trouble != 0, 0)) {
		return broken(trouble);
	}
	if (__builtin_expect(atomic_load_explicit(&d->lost, memory_order_relaxed), 0)) {
		return -EIO;
	}
	// A plain increment is enough, because only the helper reads interest, seldom, and a
	// count that two threads spoil has changed as well.
	uint32_t n = atomic_load_explicit(&d->bell->interest, memory_order_relaxed);
	atomic_store_explicit(&d->bell->interest, n + 1, memory_order_relaxed);
	// Relaxed, because a poll is repeated and the next one sees it.
	if (__builtin_expect(atomic_load_explicit(&d->bell->asleep, memory_order_relaxed) != 0, 0)) {
		wake(d);
	}
	return 0;
}

static inline int arrived(struct rmh_server_cq *c) {
	struct rmh_completion *s = &rmh_completions(c->ring)[c->head & (c->size - 1)];
	return atomic_load_explicit(&s->turn, memory_order_acquire) == c->head + 1;
}

static int poll_cq(struct rmv_cq *cq, int n, struct rmv_wc *wc) {
	struct rmh_server_cq *c = (struct rmh_server_cq *)cq;
	int got = 0;
	while (got < n && arrived(c)) {
		wc[got++] = rmh_completions(c->ring)[c->head & (c->size - 1)].wc;
		c->head++;
	}
	if (got == 0) {
		int result = empty(c);
		// Completions from before the trouble are taken first, even if they arrived after the
		// first check.
		return result != 0 && arrived(c) ? 0 : result;
	}
	atomic_store_explicit(&c->ring->taken, c->head, memory_order_release);
	return got;
}

struct rmh_device *rmh_device_new(struct rmh_bell *bell, int socket) {
	struct rmh_device *d = calloc(1, sizeof *d);
	if (d != NULL) {
		d->context.ops.poll_cq = poll_cq;
		d->context.ops.post_send = post_send;
		d->context.ops.post_recv = post_recv;
		d->bell = bell;
		d->socket = socket;
	}
	return d;
}

struct rmh_server_cq *rmh_server_cq_new(struct rmh_device *d, struct rmh_ring *ring, uint64_t size) {
	struct rmh_server_cq *c = calloc(1, sizeof *c);
	if (c != NULL) {
		c->v.context = &d->context;
		c->v.cqe = (int)size;
		c->device = d;
		c->ring = ring;
		c->size = size;
	}
	return c;
}

struct rmh_server_qp *rmh_server_qp_new(struct rmh_device *d, struct rmh_ring *ring, uint64_t size, uint32_t num) {
	struct rmh_server_qp *q = calloc(1, sizeof *q);
	if (q != NULL) {
		q->v.context = &d->context;
		q->v.qp_num = num;
		q->device = d;
		q->ring = ring;
		q->size = size;
	}
	return q;
}

void rmh_device_lost(struct rmh_device *d) { atomic_store(&d->lost, 1); }

uint64_t rmh_trouble_of(struct rmh_server_cq *c) { return atomic_load(&c->ring->trouble); }

int rmh_settle(struct rmh_server_qp *q, int64_t limit) {
	int64_t end = now_ns() + limit;
	while (atomic_load_explicit(&q->ring->taken, memory_order_acquire) != q->tail) {
		if (atomic_load(&q->device->lost)) {
			return EIO;
		}
		if (now_ns() > end) {
			return ETIMEDOUT;
		}
		announce(q->device);
		sched_yield();
	}
	return 0;
}

int rmh_post_sync(struct rmh_server_qp *q, int send, uint64_t wr_id, uint64_t addr, uint32_t length, uint32_t lkey,
                  int64_t limit) {
	if (atomic_load(&q->device->lost)) {
		return EIO;
	}
	struct rmh_request *r = free_slot(q);
	if (r == NULL) {
		return ENOMEM;
	}
	r->wr_id = wr_id;
	r->addr = addr;
	r->length = length;
	r->lkey = lkey;
	r->opcode = send ? RMV_WR_SEND : RMH_RECV;
	r->flags = send ? RMV_SEND_SIGNALED : 0;
	r->sync = 1;
	publish(q, r);
	announce(q->device);
	int err = rmh_settle(q, limit);
	uint32_t refused = atomic_exchange(&q->ring->refused, 0);
	if (refused > RMH_MOST_ERRNO) {
		refused = EIO;
	}
	return err != 0 ? err : (int)refused;
}
