#include "fake.h"

#include <string.h>

// cq_push adds a completion. A queue that overflows is dead from then on.
void cq_push(int slot, const struct cqe *e) {
	struct cq *c = &fab->cq[slot];
	fabric_lock(&c->lock);
	int n = atomic_load(&c->count);
	if (n >= c->cap) {
		atomic_store(&c->dead, 1);
	} else {
		CQE(c)[(c->head + n) % MAX_CQE] = *e;
		atomic_store(&c->count, n + 1);
	}
	fabric_unlock(&c->lock);
}

// take removes up to n completions that are ready, in order, skipping those
// that are not ready yet. It returns how many.
static int take(struct cq *c, int n, struct rmv_wc *wc) {
	int have = atomic_load(&c->count), got = 0, kept = 0;
	uint64_t now = 0;
	for (int i = 0; i < have; i++) {
		struct cqe *e = &CQE(c)[(c->head + i) % MAX_CQE];
		int ready = got < n;
		if (ready && e->ready != 0) {
			now = now == 0 ? now_ns() : now;
			ready = e->ready <= now;
		}
		if (ready) {
			wc[got++] = e->wc;
			struct qp *q = &fab->qp[e->qp];
			atomic_fetch_sub(e->send ? &q->sq_used : &q->rq_used, e->frames);
			continue;
		}
		if (got == n && kept == 0) { // the usual case: nothing was skipped
			break;
		}
		if (got > 0) {
			CQE(c)[(c->head + kept) % MAX_CQE] = *e;
		}
		kept++;
	}
	if (kept == 0) {
		c->head = (c->head + got) % MAX_CQE;
	}
	atomic_store(&c->count, have - got);
	return got;
}

void cq_forget(int slot, int qp) {
	struct cq *c = &fab->cq[slot];
	fabric_lock(&c->lock);
	int have = atomic_load(&c->count), kept = 0;
	for (int i = 0; i < have; i++) {
		struct cqe e = CQE(c)[(c->head + i) % MAX_CQE];
		if (e.qp != qp) {
			CQE(c)[(c->head + kept++) % MAX_CQE] = e;
		}
	}
	atomic_store(&c->count, kept);
	fabric_unlock(&c->lock);
}

int fake_poll_cq(struct rmv_cq *h, int n, struct rmv_wc *wc) {
	struct cq *c = &fab->cq[((struct fake_cq *)h)->slot];
	const struct fault *f = fault_at(ON_POLL_ANY, c->dev, -1);
	if (atomic_load(&fab->host[fab->dev[c->dev].host]) != HOST_ALIVE) {
		return 0;
	}
	if (atomic_load_explicit(&c->attention, memory_order_acquire)) {
		cq_service(c);
	}
	if (atomic_load(&c->dead)) {
		return -1;
	}
	if (f == NULL && atomic_load_explicit(&c->count, memory_order_acquire) == 0) {
		return 0;
	}
	fabric_lock(&c->lock);
	int got = 0;
	if (f == NULL) {
		got = take(c, n, wc);
		if (got > 0 && (f = fault_at(ON_POLL, c->dev, -1)) != NULL && (f->action == DO_NEGATIVE || f->action == DO_OVERRUN)) {
			memset(wc, 0x5a, sizeof *wc * (size_t)got); // the output of a failed poll is meaningless
		}
	}
	fabric_unlock(&c->lock);
	if (f == NULL) {
		return got;
	}
	switch (f->action) {
	case DO_NEGATIVE:
		return f->arg < 0 ? (int)f->arg : -(int)f->arg;
	case DO_OVERRUN:
		atomic_store(&c->dead, 1);
		return -1;
	case DO_MORE:
		return n + (int)f->arg;
	case DO_KILL_HOST:
		kill_host(fab->dev[c->dev].host, HOST_DEAD);
		return 0;
	}
	return got;
}
