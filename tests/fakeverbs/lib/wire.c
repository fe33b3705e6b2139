#include "fake.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// qp_guard is the lock of a queue pair's send queue: that of its peer, into
// whose receive queue the messages go.
pthread_mutex_t *qp_guard(struct qp *q) { return &fab->qp[q->dest < 0 ? q - fab->qp : q->dest].lock; }

// self is this process: the one that copies.
static pid_t self(void) { return getpid(); }

int frames_of(const struct device *d, uint32_t len) {
	return d->frames && len > FRAME ? (int)((len + FRAME - 1) / FRAME) : 1;
}

// in_region tells whether a buffer lies in the live registered memory that the
// key names, in the domain of the queue pair.
int in_region(const struct qp *q, uint32_t lkey, uint64_t addr, uint32_t len) {
	struct region_mr *m = &fab->mr[lkey % MAX_MRS];
	return len == 0 || (atomic_load(&m->used) && m->lkey == lkey && m->pd == q->pd && addr >= m->addr && len <= m->len &&
	                    addr - m->addr <= m->len - len);
}

// reachable tells whether a message from a can reach b.
static int reachable(const struct qp *a, const struct qp *b) {
	const struct device *from = &fab->dev[a->dev], *to = &fab->dev[a->dest_dev < 0 ? a->dev : a->dest_dev];
	int s = atomic_load(&b->state);
	if (a->dest_dev < 0 || atomic_load(&a->killed) || !atomic_load(&b->used) || b->qpn != a->dest_qpn || b->dev != a->dest_dev ||
	    (s != RMV_QPS_RTR && s != RMV_QPS_RTS) || b->dest_dev != a->dev || b->dest_qpn != a->qpn || b->type != a->type ||
	    b->rq_psn != a->sq_psn) {
		return 0;
	}
	if (atomic_load(&from->state) != RMV_PORT_ACTIVE || atomic_load(&to->state) != RMV_PORT_ACTIVE ||
	    atomic_load(&fab->host[to->host]) == HOST_DEAD || atomic_load(&b->gone)) {
		return 0;
	}
	if (a->cable >= 0) {
		return !atomic_load(&fab->cable[a->cable].dead);
	}
	return from == to || (from->swtch >= 0 && from->swtch == to->swtch);
}

// wire_time is when the last byte of a message has left, given that a port
// sends one message at a time; 0 where no time is charged.
static uint64_t wire_time(struct qp *a, uint32_t len, uint64_t *latency) {
	struct device *d = &fab->dev[a->dev];
	const struct cable *c = a->cable < 0 ? NULL : &fab->cable[a->cable];
	uint64_t rate = c != NULL && c->rate != 0 ? c->rate : d->rate;
	*latency = c != NULL && c->latency != 0 ? c->latency : d->latency;
	if (rate == 0 && *latency == 0) {
		return 0;
	}
	uint64_t now = now_ns(), took = rate == 0 ? 0 : (uint64_t)len * 1000000000u / rate;
	unsigned long long free = atomic_load(&d->wire_free), end;
	do {
		end = (free > now ? free : now) + took;
	} while (!atomic_compare_exchange_weak(&d->wire_free, &free, end));
	return end;
}

// lose removes the head of the send queue as the transport does when no peer
// receives it. It returns 0 if the message must wait.
static int lose(struct qp *a, struct send_slot *s, int policy) {
	if (a->type == RMV_QPT_RC) {
		uint64_t now = now_ns();
		if (s->deadline == 0) {
			s->deadline = now + fab->dev[a->dev].rc_timeout;
		}
		if (now < s->deadline) {
			return 0;
		}
		send_failed(a, RMV_WC_RETRY_EXC_ERR);
		return 1;
	}
	if (policy == NORECV_HOLD) {
		return 0; // as on Thunderbolt: the credit never arrives
	}
	atomic_fetch_add(&fab->lost, 1);
	send_done(a, 0, 0);
	return 1;
}

// look_for checks now and then whether the process of b still exists. The
// caller holds its lock.
static void look_for(struct qp *b) {
	if (!fab->shared || now_ns() - b->looked < 1000000) {
		return;
	}
	b->looked = now_ns();
	if (!process_alive(b->pid)) {
		atomic_store(&b->gone, 1);
	}
}

// no_receive handles a message for which no receive is posted. It returns 0 if the
// message must wait.
static int no_receive(struct qp *a, struct send_slot *s) {
	look_for(&fab->qp[a->dest]);
	const struct device *d = &fab->dev[a->dest_dev];
	int policy = a->type == RMV_QPT_RC ? d->norecv_rc : d->norecv_uc;
	switch (policy) {
	case NORECV_RNR:
		if (a->type == RMV_QPT_RC && a->rnr == 7) {
			return 0; // retries without limit
		}
		if (s->deadline == 0) {
			s->deadline = now_ns() + (uint64_t)(a->rnr + 1) * 640000; // 0.64 ms per retry
		}
		if (now_ns() < s->deadline) {
			return 0;
		}
		send_failed(a, RMV_WC_RNR_RETRY_EXC_ERR);
		return 1;
	case NORECV_KILL:
		atomic_store(&a->killed, 1);
		/* fall through */
	case NORECV_DROP:
		atomic_fetch_add(&fab->lost, 1);
		send_done(a, 0, 0);
		return 1;
	}
	return 0;
}

// misfit tells whether the next n bytes of a message do not fit into a receive.
static int misfit(const struct device *from, const struct device *to, const struct send_slot *s, const struct recv_slot *r,
                  uint32_t n) {
	if (n > r->len || r->over || s->late) {
		return 1;
	}
	switch (to->frames) {
	case FRAMES_MANY: // "same number of frames" (TN3205)
		return frames_of(to, r->len) != frames_of(from, s->len);
	case FRAMES_SINGLE:
		// JACCL sends one frame a message before macOS 26.3. How a longer one fails
		// is not published: taken to fail the receive, as another number of frames
		// does. A fault with above=4096 and do=drop loses it without a word instead.
		return frames_of(to, r->len) != 1 || frames_of(from, s->len) != 1;
	case FRAMES_PACKETS: // a receive beyond one packet fails (MCDMA, one source)
		return r->len > FRAME;
	}
	return 0;
}

// land delivers the head of a's send queue to the head of b's receive queue. If that has
// several packets it delivers the next one: all but the last complete with LOC_LEN_ERR and
// their length, and the queue pair stays usable (MCDMA, one source). It returns 0 if b
// turns out to have died.
static int land(struct qp *a, struct qp *b, struct send_slot *s) {
	const struct device *from = &fab->dev[a->dev], *to = &fab->dev[b->dev];
	struct recv_slot *r = &RQ(b)[b->rq_head % MAX_DEPTH];
	uint32_t n = s->len - s->moved, status = 0, vendor = 0;
	if (to->frames == FRAMES_PACKETS && n > FRAME) {
		n = FRAME;
	}
	int last = s->moved + n == s->len;
	const struct fault *f = fault_at_message(ON_RECV, b->dev, a->dev, s->len);
	uint32_t told = n;
	int both = a->type == RMV_QPT_RC, times = 1;
	uint64_t delay = 0;
	if (!in_region(b, r->lkey, r->addr, r->len)) {
		status = RMV_WC_LOC_PROT_ERR;
	} else if (misfit(from, to, s, r, n)) {
		status = RMV_WC_LOC_LEN_ERR;
		both |= to->mismatch_both;
	}
	if (f != NULL) {
		switch (f->action) {
		case DO_STATUS:
			status = (uint32_t)f->arg;
			vendor = f->vendor;
			break;
		case DO_SWALLOW:
			times = 0;
			break;
		case DO_DUP:
			times = 2;
			break;
		case DO_DELAY:
			delay = now_ns() + (uint64_t)f->arg * 1000;
			break;
		case DO_CORRUPT:
			s->corrupt = f->arg;
			break;
		case DO_LENGTH:
			told = (uint32_t)f->arg;
			break;
		case DO_KILL_HOST:
			kill_host(to->host, HOST_DEAD);
			return 0;
		}
	}
	uint64_t latency = 0, end = wire_time(a, n, &latency), here = end == 0 ? 0 : end + latency;
	if (delay > here) {
		here = delay;
	}
	if (status == 0) {
		int rc = 0;
		if (s->is_inline) {
			rc = copy_memory(b->pid, r->addr, self(), (uint64_t)(uintptr_t)s->inlined + s->moved, n);
		} else {
			rc = copy_memory(b->pid, r->addr, a->pid, s->addr + s->moved, n);
		}
		if (rc == 0 && s->corrupt >= s->moved && s->corrupt < (int64_t)s->moved + n) {
			uint64_t at = r->addr + (uint64_t)s->corrupt - s->moved;
			uint8_t x = 0;
			rc = copy_memory(self(), (uint64_t)(uintptr_t)&x, b->pid, at, 1);
			x ^= 0x40;
			rc = rc != 0 ? rc : copy_memory(b->pid, at, self(), (uint64_t)(uintptr_t)&x, 1);
		}
		if (rc == ESRCH) { // one of the two processes has died
			atomic_store(b->pid == self() ? &a->gone : &b->gone, 1);
			return 0;
		}
		if (rc != 0) {
			status = RMV_WC_LOC_PROT_ERR;
		}
	}
	atomic_fetch_add(&fab->messages, (unsigned)last);
	if (status == 0) {
		atomic_fetch_add(&fab->bytes, n);
		atomic_fetch_add(&fab->dev[a->dev].sent, n);
		s->moved += n;
		recv_done(b, last ? 0 : RMV_WC_LOC_LEN_ERR, 0, told, here, times);
		if (!last) {
			return 1;
		}
		send_done(a, 0, end == 0 ? 0 : a->type == RMV_QPT_RC ? end + 2 * latency : end);
		return 1;
	}
	recv_done(b, status, vendor, NO_LENGTH, 0, 1);
	qp_fail(b);
	if (both) {
		send_failed(a, RMV_WC_REM_INV_REQ_ERR);
	} else {
		send_done(a, 0, 0);
	}
	return 1;
}

// put writes the head of a's send queue into memory of b's side, which is not
// notified. Without the permission, an acknowledging peer refuses and any other
// stays silent.
static int put(struct qp *a, struct qp *b, struct send_slot *s) {
	uint64_t latency = 0, end = wire_time(a, s->len, &latency);
	atomic_fetch_add(&fab->messages, 1);
	int refused = (b->access & fab->mr[s->rkey % MAX_MRS].access & RMV_ACCESS_REMOTE_WRITE) == 0 ||
	              !in_region(b, s->rkey, s->remote, s->len);
	if (!refused) {
		uint64_t from = s->is_inline ? (uint64_t)(uintptr_t)s->inlined : s->addr;
		int rc = copy_memory(b->pid, s->remote, s->is_inline ? self() : a->pid, from, s->len);
		if (rc == ESRCH) {
			atomic_store(b->pid == self() ? &a->gone : &b->gone, 1);
			return 0;
		}
		refused = rc != 0;
	}
	if (refused && a->type == RMV_QPT_RC) {
		send_failed(a, RMV_WC_REM_ACCESS_ERR);
		return 1;
	}
	atomic_fetch_add(refused ? &fab->lost : &fab->bytes, refused ? 1 : s->len);
	send_done(a, 0, end == 0 ? 0 : a->type == RMV_QPT_RC ? end + 2 * latency : end);
	return 1;
}

// step advances the head of the send queue. It returns 0 if it must wait.
static int step(struct qp *a) {
	struct send_slot *s = &SQ(a)[a->sq_head % MAX_DEPTH];
	struct qp *b = &fab->qp[a->dest];
	int host = atomic_load(&fab->host[fab->dev[a->dev].host]);
	if (host != HOST_ALIVE || atomic_load(&a->gone)) {
		return 0;
	}
	if (atomic_load(&a->state) == RMV_QPS_ERR) {
		flush_sends(a);
		return 1;
	}
	if (s->until != 0 && now_ns() < s->until) {
		return 0;
	}
	if (s->hold != 0 && atomic_load(&fab->messages) < s->hold) {
		return 0;
	}
	if (!s->is_inline && !in_region(a, s->lkey, s->addr, s->len)) {
		s->status = RMV_WC_LOC_PROT_ERR;
	}
	if (s->status != 0) {
		send_failed(a, s->status);
		return 1;
	}
	if (!reachable(a, b)) {
		return lose(a, s, fab->dev[a->dev].norecv_uc);
	}
	if (s->drop) {
		atomic_fetch_add(&fab->lost, 1);
		send_done(a, 0, 0);
		return 1;
	}
	if (s->write) {
		return put(a, b, s);
	}
	if (s->len == 0 && fab->dev[a->dev].zero_lost) {
		atomic_fetch_add(&fab->lost, 1); // its place in the queue is not freed either
		a->sq_head++;
		return 1;
	}
	if (b->rq_head == b->rq_tail) {
		return no_receive(a, s);
	}
	return land(a, b, s);
}

// qp_pump moves every message that can be moved. The caller holds the guard of
// a. It returns 0 if something has to wait.
int qp_pump(struct qp *a) {
	while (a->sq_head != a->sq_tail) {
		if (!step(a)) {
			return 0;
		}
	}
	return 1;
}

// qp_inbound is the queue pair that sends to b, NULL if there is none.
struct qp *qp_inbound(struct qp *b) {
	struct qp *a = b->dest < 0 ? NULL : &fab->qp[b->dest];
	return a != NULL && atomic_load(&a->used) && a->dest == (int)(b - fab->qp) ? a : NULL;
}

// service does for a queue pair what hardware would do by itself: it moves
// messages that are due, and flushes after an error. It returns 0 if there is
// more to do later.
static int service(struct qp *q) {
	int idle = 1;
	pthread_mutex_t *g = qp_guard(q);
	fabric_lock(g);
	if (q->dest >= 0) {
		idle &= qp_pump(q);
	} else if (atomic_load(&q->state) == RMV_QPS_ERR) {
		flush_sends(q);
	}
	fabric_unlock(g);
	fabric_lock(&q->lock);
	struct qp *a = qp_inbound(q);
	if (a != NULL) {
		idle &= qp_pump(a);
	}
	if (atomic_load(&q->state) == RMV_QPS_ERR && atomic_load(&fab->host[fab->dev[q->dev].host]) == HOST_ALIVE) {
		flush_recvs(q);
	}
	fabric_unlock(&q->lock);
	return idle;
}

void cq_service(struct cq *c) {
	atomic_store(&c->attention, 0);
	int again = 0;
	for (int w = 0; w < MAX_QPS / 64; w++) {
		uint64_t set = atomic_load(&c->qps[w]);
		for (; set != 0; set &= set - 1) {
			again |= !service(&fab->qp[w * 64 + __builtin_ctzll(set)]);
		}
	}
	if (again) {
		atomic_store(&c->attention, 1);
	}
}
