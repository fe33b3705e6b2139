#include "rm_loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	CHECK_EVERY = 64,      // empty passes between two reads of the clock
	REST_AFTER = 4000000,  // ns without work after which the thread sleeps: as the engine's
	REST = 50000,          // ns
	RESTS_ALONE = 16,      // rests without a poll of the server before it waits for the bell
};

struct served_cq {
	struct rmv_cq *cq;
	struct rmh_ring *ring;
	uint64_t size, tail, taken; // taken: as last seen
	int dead;
};

struct served_qp {
	struct rmv_qp *qp;
	struct rmh_ring *ring;
	uint64_t size, head;
	struct rmv_cq *send_cq, *recv_cq;
	int broken; // later posts are dropped
};

struct region {
	uint32_t lkey;
	uint64_t there, bytes;
	uint8_t *here;
};

// rmh_loop: the thread holds the lock, except while it waits or another thread wants
// the lock.
struct rmh_loop {
	pthread_mutex_t lock;
	atomic_int wanted, stop;
	struct rmh_bell *bell;
	int socket;
	int64_t spin;
	struct served_cq *cqs;
	struct served_qp *qps;
	struct region *mrs;
	int ncqs, nqps, nmrs, mr; // mr: found last
};

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct rmh_loop *rmh_loop_new(struct rmh_bell *bell, int socket, int64_t spin) {
	struct rmh_loop *l = calloc(1, sizeof *l);
	if (l != NULL) {
		pthread_mutex_init(&l->lock, NULL);
		l->bell = bell;
		l->socket = socket;
		l->spin = spin;
	}
	return l;
}

void rmh_loop_free(struct rmh_loop *l) {
	pthread_mutex_destroy(&l->lock);
	free(l->cqs);
	free(l->qps);
	free(l->mrs);
	free(l);
}

// acquire takes the lock from the running loop.
static void acquire(struct rmh_loop *l) {
	atomic_fetch_add(&l->wanted, 1);
	pthread_mutex_lock(&l->lock);
	atomic_fetch_sub(&l->wanted, 1);
}

static void release(struct rmh_loop *l) { pthread_mutex_unlock(&l->lock); }

static struct served_cq *find_cq(struct rmh_loop *l, const struct rmv_cq *cq) {
	for (int i = 0; i < l->ncqs; i++) {
		if (l->cqs[i].cq == cq) {
			return &l->cqs[i];
		}
	}
	return NULL;
}

// address returns where a request's memory is in this process, 0 if no region has it.
static uint64_t address(struct rmh_loop *l, uint32_t lkey, uint64_t addr, uint32_t length) {
	for (int k = 0; k < l->nmrs; k++) {
		int i = (l->mr + k) % l->nmrs;
		const struct region *m = &l->mrs[i];
		if (m->lkey == lkey && addr >= m->there && length <= m->bytes && addr - m->there <= m->bytes - length) {
			l->mr = i;
			return (uint64_t)(uintptr_t)m->here + (addr - m->there);
		}
	}
	return 0;
}

// post passes one request to the device: 0 or an errno.
static int post(struct rmh_loop *l, struct served_qp *q, const struct rmh_request *r) {
	struct rmv_sge sge = {.addr = address(l, r->lkey, r->addr, r->length), .length = r->length, .lkey = r->lkey};
	int err;
	if (sge.addr == 0) {
		return EINVAL;
	}
	if (r->opcode == RMH_RECV) {
		struct rmv_recv_wr wr = {.wr_id = r->wr_id, .sg_list = &sge, .num_sge = 1};
		rmv_post_recv(q->qp, &wr, 1, &err);
		return err;
	}
	struct rmv_send_wr wr = {.wr_id = r->wr_id, .sg_list = &sge, .num_sge = 1, .opcode = r->opcode, .send_flags = r->flags,
	                         .remote_addr = r->remote_addr, .rkey = r->rkey};
	rmv_post_send(q->qp, &wr, 1, &err);
	return err;
}

// bring_completions forwards the completions of a queue while the ring has room, and
// returns how many.
static int bring_completions(struct served_cq *c) {
	struct rmv_wc wc[RMH_BATCH];
	int most = RMH_BATCH;
	if (c->tail - c->taken + RMH_BATCH > c->size) {
		c->taken = atomic_load_explicit(&c->ring->taken, memory_order_acquire);
		uint64_t room = c->size - (c->tail - c->taken);
		most = room < RMH_BATCH ? (int)room : RMH_BATCH;
	}
	if (most == 0 || c->dead) {
		return 0;
	}
	int got = rmv_poll_cq(c->cq, most, wc);
	if (__builtin_expect((uint32_t)got > (uint32_t)most, 0)) {
		uint64_t none = 0;
		c->dead = 1;
		atomic_compare_exchange_strong(&c->ring->trouble, &none, rmh_trouble(RMH_POLL, 0, (uint32_t)got));
		return 0;
	}
	for (int i = 0; i < got; i++) {
		struct rmh_completion *s = &rmh_completions(c->ring)[c->tail & (c->size - 1)];
		s->wc = wc[i];
		c->tail++;
		atomic_store_explicit(&s->turn, c->tail, memory_order_release);
	}
	return got;
}

// trouble says why no more completions will follow in a queue. The first reason
// stays.
static void trouble(struct rmh_loop *l, const struct rmv_cq *cq, uint64_t what) {
	struct served_cq *c = find_cq(l, cq);
	uint64_t none = 0;
	if (c == NULL) {
		return;
	}
	while (bring_completions(c) > 0) {
	}
	atomic_compare_exchange_strong(&c->ring->trouble, &none, what);
}

static inline struct rmh_request *front(const struct served_qp *q) {
	return &rmh_requests(q->ring)[q->head & (q->size - 1)];
}

// take_requests passes the requests of a ring to the device, at most the ring's size,
// and returns how many.
static int take_requests(struct rmh_loop *l, struct served_qp *q) {
	uint64_t n = 0;
	while (n < q->size) {
		struct rmh_request *r = front(q);
		if (atomic_load_explicit(&r->turn, memory_order_acquire) != q->head + 1) {
			break;
		}
		int err = q->broken ? 0 : post(l, q, r);
		if (__builtin_expect(err != 0, 0)) {
			if (r->sync) {
				atomic_store(&q->ring->refused, (uint32_t)err);
			} else {
				int receive = r->opcode == RMH_RECV;
				q->broken = 1;
				trouble(l, receive ? q->recv_cq : q->send_cq,
				        rmh_trouble(receive ? RMH_POST_RECV : RMH_POST_SEND, err, q->qp->qp_num));
			}
		}
		q->head++;
		n++;
	}
	if (n > 0) {
		atomic_store_explicit(&q->ring->taken, q->head, memory_order_release);
	}
	return (int)n;
}

static int pass(struct rmh_loop *l) {
	int n = 0;
	for (int i = 0; i < l->nqps; i++) {
		n += take_requests(l, &l->qps[i]);
	}
	for (int i = 0; i < l->ncqs; i++) {
		n += bring_completions(&l->cqs[i]);
	}
	return n;
}

// wait_bell sleeps until the server rings. It returns 0 when the socket has ended.
static int wait_bell(struct rmh_loop *l) {
	atomic_store(&l->bell->asleep, 1); // sequentially consistent, as the next loads: see rm_ring.h
	for (int i = 0; i < l->nqps; i++) {
		const struct served_qp *q = &l->qps[i];
		if (atomic_load(&front(q)->turn) == q->head + 1) {
			atomic_store(&l->bell->asleep, 0);
			return 1;
		}
	}
	release(l);
	struct pollfd p = {.fd = l->socket, .events = POLLIN};
	int ended = 0;
	while (!ended && poll(&p, 1, -1) < 0) {
		ended = errno != EINTR;
	}
	char bytes[64];
	ssize_t got = ended ? 0 : recv(l->socket, bytes, sizeof bytes, MSG_DONTWAIT);
	ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->bell->asleep, 0);
	return !ended;
}

void rmh_loop_run(struct rmh_loop *l) {
	int64_t idle = 0;
	unsigned polls = 0, alone = 0;
	uint32_t interest = 0;
	pthread_mutex_lock(&l->lock);
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		if (__builtin_expect(atomic_load_explicit(&l->wanted, memory_order_relaxed) != 0, 0)) {
			release(l);
			while (atomic_load(&l->wanted) != 0) {
				sched_yield();
			}
			pthread_mutex_lock(&l->lock);
		}
		if (pass(l) > 0) {
			idle = 0;
			continue;
		}
		if (++polls % CHECK_EVERY != 0 && idle == 0) {
			rmh_relax();
			continue;
		}
		int64_t now = now_ns();
		if (idle == 0) {
			idle = now;
			alone = 0;
		}
		if (now - idle <= l->spin) {
			rmh_relax();
			continue;
		}
		if (now - idle <= REST_AFTER) {
			sched_yield();
			continue;
		}
		uint32_t seen = atomic_load_explicit(&l->bell->interest, memory_order_relaxed);
		alone = seen == interest ? alone + 1 : 0;
		interest = seen;
		if (alone <= RESTS_ALONE) {
			struct timespec rest = {0, REST};
			nanosleep(&rest, NULL);
			continue;
		}
		if (!wait_bell(l)) {
			break;
		}
		idle = 0;
	}
	release(l);
}

void rmh_loop_stop(struct rmh_loop *l) {
	atomic_store(&l->stop, 1);
	shutdown(l->socket, SHUT_RDWR);
}

// grow makes room for one more element and returns the array, or NULL.
static void *grow(void *array, int n, size_t size) { return realloc(array, ((size_t)n + 1) * size); }

int rmh_loop_add_cq(struct rmh_loop *l, struct rmv_cq *cq, struct rmh_ring *ring, uint64_t size) {
	acquire(l);
	struct served_cq *a = grow(l->cqs, l->ncqs, sizeof *a);
	if (a != NULL) {
		l->cqs = a;
		a[l->ncqs++] = (struct served_cq){.cq = cq, .ring = ring, .size = size};
	}
	release(l);
	return a == NULL ? ENOMEM : 0;
}

int rmh_loop_add_qp(struct rmh_loop *l, struct rmv_qp *qp, struct rmv_cq *send_cq, struct rmv_cq *recv_cq,
                    struct rmh_ring *ring, uint64_t size) {
	acquire(l);
	struct served_qp *a = grow(l->qps, l->nqps, sizeof *a);
	if (a != NULL) {
		l->qps = a;
		a[l->nqps++] = (struct served_qp){.qp = qp, .ring = ring, .size = size, .send_cq = send_cq, .recv_cq = recv_cq};
	}
	release(l);
	return a == NULL ? ENOMEM : 0;
}

int rmh_loop_add_mr(struct rmh_loop *l, uint32_t lkey, uint64_t there, uint8_t *here, uint64_t bytes) {
	acquire(l);
	struct region *a = grow(l->mrs, l->nmrs, sizeof *a);
	if (a != NULL) {
		l->mrs = a;
		a[l->nmrs++] = (struct region){.lkey = lkey, .there = there, .here = here, .bytes = bytes};
	}
	release(l);
	return a == NULL ? ENOMEM : 0;
}

void rmh_loop_remove_cq(struct rmh_loop *l, struct rmv_cq *cq) {
	acquire(l);
	struct served_cq *c = find_cq(l, cq);
	if (c != NULL) {
		*c = l->cqs[--l->ncqs];
	}
	release(l);
}

static struct served_qp *find_qp(struct rmh_loop *l, const struct rmv_qp *qp) {
	for (int i = 0; i < l->nqps; i++) {
		if (l->qps[i].qp == qp) {
			return &l->qps[i];
		}
	}
	return NULL;
}

void rmh_loop_remove_qp(struct rmh_loop *l, struct rmv_qp *qp) {
	acquire(l);
	struct served_qp *q = find_qp(l, qp);
	if (q != NULL) {
		*q = l->qps[--l->nqps];
	}
	release(l);
}

void rmh_loop_remove_mr(struct rmh_loop *l, uint32_t lkey) {
	acquire(l);
	for (int i = 0; i < l->nmrs; i++) {
		if (l->mrs[i].lkey == lkey) {
			l->mrs[i] = l->mrs[--l->nmrs];
			break;
		}
	}
	l->mr = 0;
	release(l);
}

void rmh_loop_settle(struct rmh_loop *l, struct rmv_qp *qp) {
	acquire(l);
	struct served_qp *q = find_qp(l, qp);
	if (q != NULL) {
		take_requests(l, q);
	}
	release(l);
}
