// The inner loop: see rm_engine.h.
#include <sched.h>
#include <string.h>
#include <time.h>

#include "compute.h"

enum {
	CHECK_EVERY = 256,     // empty polls between two reads of flag and clock
	SLEEP_AFTER = 4000000, // ns without a completion after which the thread sleeps
	SLEEP = 50000,         // ns
};

int rme_begin(struct rme_task *t, uint64_t seq) {
	t->seq = seq;
	t->left = 0;
	t->sent = t->received = t->header_at = 0;
	t->odd_lengths = 0;
	t->need_op = -1;
	t->fail = (struct rme_fail){0};
	for (int i = 0; i < t->nops; i++) {
		t->ops[i].done = t->ops[i].arrived = 0;
		t->left += t->ops[i].chunks;
	}
	for (int i = 0; i < t->nwires; i++) {
		struct rme_wire *w = &t->wires[i];
		struct rme_conn *c = t->conns[w->conn];
		w->header.seq = seq;
		w->round = w->next = w->number = 0;
		w->left = w->messages;
		w->begun = w->announced = 0;
		w->base = c->recvs_done;
		advance(t, w);
		const struct rme_op *o = &t->ops[w->op];
		w->embedded = chunk_len(o, w->chunk) * width(t, o->wide) <= (int64_t)(c->header_bytes - sizeof(struct rme_header));
		w->data = w->messages - w->embedded;
		if (!w->recv) {
			continue;
		}
		w->ahead = cursor_of(w);
		if (w->embedded) {
			walk(t, w, &w->ahead);
		}
		for (int64_t k = 0; k < least(w->data, c->slots); k++) {
			if (post_next(t, w) != RME_DONE) {
				return RME_BROKEN;
			}
		}
		if (send_credit(t, w->conn) != RME_DONE) {
			return RME_BROKEN;
		}
	}
	return RME_DONE;
}

const uint8_t *rme_need(struct rme_task *t, int k, int32_t *space, int64_t *off, int32_t *wide) {
	struct rme_op *o = &t->ops[t->need_op];
	if (k < 0) { // the result
		*space = o->write.space;
		*off = at(&o->write, t->need_chunk);
		*wide = o->wide;
		return o->write.space == RME_SCRATCH ? t->scratch + *off : NULL;
	}
	const struct rme_input *in = &t->inputs[o->in + k];
	*wide = in->wide;
	*space = in->recv >= 0 ? RME_SLOT : in->ref.space;
	*off = in->recv >= 0 ? 0 : at(&in->ref, t->need_chunk);
	if (*space == RME_SLOT || *space == RME_SCRATCH) {
		return input(t, in, t->need_chunk, NULL, NULL);
	}
	return NULL;
}

int rme_reduced(struct rme_task *t) {
	struct rme_op *o = &t->ops[t->need_op];
	t->need_op = -1;
	return release(t, o);
}

// pass does all ready work. It returns how much, or -1 or -2 as compute does.
static int pass(struct rme_task *t, const uint8_t *src, uint8_t *dst) {
	int n = 0;
	for (int i = 0; i < t->nwires; i++) {
		struct rme_wire *w = &t->wires[i];
		int k = w->recv ? receive(t, w, dst) : 0;
		if (k < 0) {
			return -1;
		}
		n += k;
	}
	for (int i = 0; i < t->nops; i++) {
		if (t->ops[i].kind == RME_OP_REDUCE || t->ops[i].kind == RME_OP_COPY) {
			int k = compute(t, i, src, dst);
			if (k < 0) {
				return k;
			}
			n += k;
		}
	}
	for (int i = 0; i < t->nwires; i++) {
		struct rme_wire *w = &t->wires[i];
		int k = w->recv ? 0 : send_ready(t, w, src, dst);
		if (k < 0) {
			return -1;
		}
		n += k;
	}
	return n;
}

int rme_run(struct rme_task *t, const uint8_t *src, uint8_t *dst, int64_t slice) {
	int64_t begun = 0, idle = 0;
	unsigned polls = 0;
	enum { SPIN, YIELD, REST } backoff = SPIN;
	int got = 1;
	for (;;) {
		while (got > 0) { // only a completion makes new work ready
			int n = pass(t, src, dst);
			if (n < 0) {
				return n == -2 ? RME_REDUCE : RME_BROKEN;
			}
			if (t->left == 0) {
				return RME_DONE;
			}
			got = n;
		}
		got = poll(t);
		if (got < 0) {
			return RME_BROKEN;
		}
		if (got > 0) {
			idle = 0;
			polls = 0;
			backoff = SPIN;
			if (slice > 0) {
				continue;
			}
		}
		if (slice > 0 && backoff == SPIN && ++polls % CHECK_EVERY != 0) {
			relax();
			continue;
		}
		// No completions for a while.
		if (__atomic_load_n(t->flag, __ATOMIC_ACQUIRE)) {
			return RME_STOPPED;
		}
		if (slice <= 0) {
			if (got == 0) {
				return RME_AGAIN;
			}
			continue;
		}
		int64_t now = rme_now();
		if (begun == 0) {
			begun = now;
		}
		if (idle == 0) {
			idle = now;
		}
		if (now - begun > slice) {
			return RME_AGAIN;
		}
		backoff = now - idle > SLEEP_AFTER ? REST : now - idle > t->spin ? YIELD : SPIN;
		if (backoff == YIELD) {
			sched_yield();
		} else if (backoff == REST) {
			struct timespec rest = {0, SLEEP};
			nanosleep(&rest, NULL);
		}
	}
}
