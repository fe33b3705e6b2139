// The inner loop: see engine.h.
#include "engine_wire.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum {
	LOOKS = 256,       // empty passes between two looks at flag and clock
	INPUTS = 64,       // most blocks of one reduction in C
	REST_AFTER = 4000000, // ns without anything after which a thread sleeps a little
	REST = 50000,
};

int rm_begin(struct rm_job *j, uint64_t seq) {
	j->seq = seq;
	j->left = 0;
	j->sent = j->received = j->heard = 0;
	j->polls = j->empty = 0;
	j->need_op = -1;
	j->fail = (struct rm_fail){0};
	for (int i = 0; i < j->nops; i++) {
		j->ops[i].done = j->ops[i].arrived = 0;
		j->left += j->ops[i].chunks;
	}
	for (int i = 0; i < j->nwires; i++) {
		struct rm_wire *w = &j->wires[i];
		struct rm_conn *c = j->conns[w->conn];
		w->head.seq = seq;
		w->round = w->next = w->number = 0;
		w->left = w->messages;
		w->begun = w->announced = 0;
		w->base = c->came;
		advance(j, w);
		const struct rm_op *o = &j->ops[w->op];
		w->embedded = chunk_len(o, w->chunk) * width(j, o->wide) <= (int64_t)(c->head_bytes - sizeof(struct rm_head));
		w->data = w->messages - w->embedded;
		if (!w->recv) {
			continue;
		}
		struct cursor m = cursor_of(w);
		if (w->embedded) {
			walk(j, w, &m);
		}
		for (int64_t k = 0; k < least(w->data, c->slots); k++) {
			if (post_next(j, w, &j->ops[m.op], m.chunk) != RM_DONE) {
				return RM_BROKEN;
			}
			walk(j, w, &m);
		}
		if (grant(j, w->conn) != RM_DONE) {
			return RM_BROKEN;
		}
	}
	return RM_DONE;
}

static inline int ready(const struct rm_job *j, const struct rm_op *o, int64_t chunk) {
	for (int i = 0; i < o->nafter; i++) {
		const struct rm_dep *d = &j->deps[o->after + i];
		const struct rm_op *p = &j->ops[d->op];
		if ((p->held ? p->arrived : p->done) < least(chunk - d->back + 1, p->chunks)) {
			return 0;
		}
	}
	return 1;
}

// Completions

// take notes one completion that has succeeded. 0, or RM_BROKEN.
static inline int take(struct rm_job *j, int conn, const struct rmv_wc *wc) {
	struct rm_conn *c = j->conns[conn];
	int slot = (int)(wc->wr_id >> 8 & 0xff), kind = (int)(wc->wr_id >> 16 & 0xff);
	uint64_t *id = NULL;
	switch (kind) {
	case RM_KIND_SEND:
		id = slot < c->slots ? &c->send_id[slot] : NULL;
		break;
	case RM_KIND_RECV:
		id = slot == (int)(c->came % (uint64_t)c->slots) ? &c->recv_id[slot] : NULL;
		break;
	case RM_KIND_HEAD_SEND:
		id = slot < RM_HEADS ? &c->head_id[slot] : NULL;
		break;
	case RM_KIND_HEAD_RECV:
		id = &c->head_recv_id;
		break;
	case RM_KIND_GRANT:
		id = slot < RM_GRANTS ? &c->grant_id[slot] : NULL;
		break;
	}
	if (__builtin_expect(id == NULL || *id != wc->wr_id || wc->wr_id == 0, 0)) {
		j->fail.wc = *wc;
		return fail(j, RM_FAIL_STALE, conn, 0);
	}
	*id = 0;
	if (kind == RM_KIND_RECV) {
		c->recv_len[slot] = wc->byte_len;
		c->came++;
	} else if (kind == RM_KIND_HEAD_RECV) {
		c->head_in = 1;
		c->head_len = wc->byte_len;
	}
	return 0;
}

static int wrong_head(struct rm_job *j, struct rm_wire *w);

// refused is the one cold branch behind a batch: a head in it that is not the
// one expected is the cause; a length that does not fit is then the consequence.
__attribute__((noinline, cold)) static int refused(struct rm_job *j, int conn, int got, const struct rmv_wc *wc) {
	struct rm_conn *c = j->conns[conn];
	if (got >= 0 && got <= RM_BATCH) {
		for (int i = 0; i < got; i++) {
			if (wc[i].status == RMV_WC_SUCCESS && wc[i].wr_id == c->head_recv_id && !c->head_in) {
				c->head_in = 1;
			}
		}
	}
	for (int i = 0; i < j->nwires; i++) {
		struct rm_wire *w = &j->wires[i];
		if (w->conn == conn && w->recv && !w->begun && c->head_in && memcmp(c->head_recv, &w->head, sizeof w->head) != 0) {
			return wrong_head(j, w);
		}
	}
	int k = rm_wc_cause(got, RM_BATCH, wc);
	j->fail.got = got;
	if (k < 0) {
		return fail(j, RM_FAIL_POLL, conn, 0);
	}
	j->fail.wc = wc[k];
	return fail(j, RM_FAIL_COMPLETION, conn, 0);
}

// more tells whether the peer of a connection has posted receives since the last
// look.
static inline int more(struct rm_conn *c) {
	if (c->room == NULL) {
		return 0;
	}
	uint64_t n = room(c);
	int news = n != c->seen;
	c->seen = n;
	return news;
}

// poll takes what has completed, and tells the peers of new receives. The number
// of completions and of peers that have told as much, or -1.
static inline int poll(struct rm_job *j) {
	struct rmv_wc wc[RM_BATCH];
	int all = 0;
	for (int k = 0; k < j->nconns; k++) {
		int got = rm_poll_cq(j->conns[k]->cq, RM_BATCH, wc);
		if (rm_wc_bad(got, RM_BATCH, wc)) {
			refused(j, k, got, wc);
			return -1;
		}
		for (int i = 0; i < got; i++) {
			if (take(j, k, &wc[i]) != 0) {
				return -1;
			}
		}
		if (grant(j, k) != RM_DONE) {
			return -1;
		}
		all += got + more(j->conns[k]);
	}
	return all;
}

// Receiving

__attribute__((noinline, cold)) static int wrong_head(struct rm_job *j, struct rm_wire *w) {
	memcpy(&j->fail.head, j->conns[w->conn]->head_recv, sizeof j->fail.head);
	j->fail.expected = w->head;
	return fail(j, RM_FAIL_HEAD, w->conn, 0);
}

// front is the chunk of the message in front, NULL if it has not come.
static inline uint8_t *front(struct rm_job *j, struct rm_wire *w) {
	struct rm_conn *c = j->conns[w->conn];
	if (w->embedded && w->number == 0) {
		return c->head_recv + sizeof(struct rm_head);
	}
	uint64_t k = w->base + (uint64_t)(w->number - w->embedded);
	return c->came > k ? c->recv + (size_t)(k % (uint64_t)c->slots) * c->slot_bytes : NULL;
}

// wrong tells whether the message in front is not the one that is due: RM_BROKEN.
static inline int wrong(struct rm_job *j, struct rm_wire *w, const uint8_t *from) {
	struct rm_conn *c = j->conns[w->conn];
	if (w->embedded && w->number == 0) {
		return RM_DONE;
	}
	uint32_t len = c->recv_len[(w->base + (uint64_t)(w->number - w->embedded)) % (uint64_t)c->slots];
	uint32_t want = message_bytes(j, &j->ops[w->op], w->chunk);
	if (__builtin_expect(len != want, 0)) {
		j->fail.want = want;
		j->fail.wc.byte_len = len;
		return fail(j, RM_FAIL_LENGTH, w->conn, 0);
	}
	if (j->tag != 0) {
		uint64_t tag;
		memcpy(&tag, from + want - sizeof tag, sizeof tag);
		if (__builtin_expect(tag != tag_of(j, w), 0)) {
			j->fail.got = (int32_t)((tag ^ tag_of(j, w) ^ (uint64_t)w->number) & 0xffffff);
			j->fail.want = (uint32_t)w->number;
			return fail(j, RM_FAIL_LOST, w->conn, 0);
		}
	}
	return RM_DONE;
}

// consumed frees the slot of the message in front and posts the next receive.
static int consumed(struct rm_job *j, struct rm_wire *w) {
	struct rm_conn *c = j->conns[w->conn];
	struct rm_op *o = &j->ops[w->op];
	if (!(w->embedded && w->number == 0)) {
		int64_t i = w->number - w->embedded;
		int slot = (int)((w->base + (uint64_t)i) % (uint64_t)c->slots);
		j->received += c->recv_len[slot];
		// plan.Again: never more than will come.
		if (i + c->slots < w->data) {
			struct cursor m = cursor_of(w);
			for (int k = 0; k < c->slots; k++) {
				walk(j, w, &m);
			}
			if (post_next(j, w, &j->ops[m.op], m.chunk) != RM_DONE) {
				return RM_BROKEN;
			}
		}
	}
	o->done++;
	j->left--;
	w->number++;
	w->announced = 0;
	advance(j, w);
	if (w->op >= 0) {
		return RM_DONE;
	}
	// After the last receive of this operation comes that for the next head.
	int err = rm_post_head(c, j->seq);
	return err == 0 ? grant(j, w->conn) : fail(j, RM_FAIL_POST_RECV, w->conn, err);
}

static uint8_t *place(struct rm_job *j, const struct rm_ref *r, int64_t chunk, uint8_t *dst) {
	switch (r->space) {
	case RM_DST:
		return dst + at(r, chunk);
	case RM_SCRATCH:
		return j->scratch + at(r, chunk);
	}
	return NULL;
}

static const uint8_t *source(struct rm_job *j, const struct rm_ref *r, int64_t chunk, const uint8_t *src, const uint8_t *dst) {
	switch (r->space) {
	case RM_SRC:
		return src + at(r, chunk);
	case RM_DST:
		return dst + at(r, chunk);
	case RM_SCRATCH:
		return j->scratch + at(r, chunk);
	}
	return NULL;
}

// receive takes the messages of a wire that have come. How many, or -1.
static int receive(struct rm_job *j, struct rm_wire *w, uint8_t *dst) {
	struct rm_conn *c = j->conns[w->conn];
	int n = 0;
	while (w->op >= 0) {
		if (!w->begun) {
			if (!c->head_in) {
				return n;
			}
			if (__builtin_expect(memcmp(c->head_recv, &w->head, sizeof w->head) != 0, 0)) {
				wrong_head(j, w);
				return -1;
			}
			c->head_in = 0;
			w->begun = 1;
			j->received += c->head_len;
			j->heard = rm_now();
			n++;
		}
		const uint8_t *from = front(j, w);
		if (from == NULL) {
			return n;
		}
		struct rm_op *o = &j->ops[w->op];
		if (!w->announced && wrong(j, w, from) != RM_DONE) {
			return -1;
		}
		if (o->held) {
			if (!w->announced) {
				w->announced = 1;
				o->arrived++;
				n++;
			}
			return n;
		}
		if (!ready(j, o, w->chunk)) {
			return n;
		}
		uint8_t *to = place(j, &o->write, w->chunk, dst);
		if (to != NULL) {
			memcpy(to, from, (size_t)(chunk_len(o, w->chunk) * width(j, o->wide)));
		}
		if (consumed(j, w) != RM_DONE) {
			return -1;
		}
		n++;
	}
	return n;
}

// Sending

// send_ready posts the messages of a wire whose chunks are ready. How many, or -1.
static int send_ready(struct rm_job *j, struct rm_wire *w, const uint8_t *src, const uint8_t *dst) {
	struct rm_conn *c = j->conns[w->conn];
	int n = 0;
	while (w->op >= 0) {
		struct rm_op *o = &j->ops[w->op];
		int head = !w->begun;
		int chunk = !head || w->embedded;
		int slot = (int)(head ? c->heads % RM_HEADS : c->sends % (uint64_t)c->slots);
		uint64_t *busy = head ? &c->head_id[slot] : &c->send_id[slot];
		if (*busy != 0 || (chunk && !ready(j, o, w->chunk)) || (c->room != NULL && c->heads + c->sends >= room(c))) {
			return n;
		}
		uint8_t *to = head ? c->head_send + (size_t)slot * c->head_bytes : c->send + (size_t)slot * c->slot_bytes;
		uint8_t *start = to;
		uint32_t len = head ? 0 : message_bytes(j, o, w->chunk);
		if (head) {
			memcpy(to, &w->head, sizeof w->head);
			to += sizeof w->head;
		}
		if (chunk) {
			const uint8_t *from = source(j, &o->read, w->chunk, src, dst);
			size_t bytes = from == NULL ? 0 : (size_t)(chunk_len(o, w->chunk) * width(j, o->wide));
			if (from != NULL) {
				memcpy(to, from, bytes);
			}
			if (head) {
				len = (uint32_t)((sizeof w->head + bytes + 4095) / 4096 * 4096);
			} else if (j->tag != 0) {
				uint64_t tag = tag_of(j, w);
				memcpy(start + len - sizeof tag, &tag, sizeof tag);
			}
		} else {
			len = 4096;
		}
		uint64_t id = id_of(c, j->seq, head ? RM_KIND_HEAD_SEND : RM_KIND_SEND, slot);
		*busy = id;
		int err = post_send(c, start, len, id);
		if (__builtin_expect(err != 0, 0)) {
			*busy = 0;
			fail(j, RM_FAIL_POST_SEND, w->conn, err);
			return -1;
		}
		j->sent += len;
		n++;
		if (head) {
			c->heads++;
			w->begun = 1;
		} else {
			c->sends++;
		}
		if (chunk) {
			o->done++;
			j->left--;
			w->number++;
			advance(j, w);
		}
	}
	return n;
}

// Computing

static const uint8_t *input(struct rm_job *j, const struct rm_input *in, int64_t chunk, const uint8_t *src, const uint8_t *dst) {
	if (in->recv >= 0) {
		return front(j, &j->wires[j->ops[in->recv].wire]);
	}
	return source(j, &in->ref, chunk, src, dst);
}

// release frees the slots that a reduction has held and counts it.
static int release(struct rm_job *j, struct rm_op *o) {
	o->done++;
	j->left--;
	for (int i = 0; i < o->nin; i++) {
		int32_t recv = j->inputs[o->in + i].recv;
		if (recv >= 0 && consumed(j, &j->wires[j->ops[recv].wire]) != RM_DONE) {
			return RM_BROKEN;
		}
	}
	return RM_DONE;
}

// in_c reduces a chunk if it can: 1.
static int in_c(struct rm_job *j, struct rm_op *o, const uint8_t *src, uint8_t *dst) {
	if (j->how == RM_BY_GO || o->nin > INPUTS) {
		return 0;
	}
	const uint8_t *blocks[INPUTS];
	uint8_t wide[INPUTS];
	int any = o->wide;
	for (int i = 0; i < o->nin; i++) {
		const struct rm_input *in = &j->inputs[o->in + i];
		blocks[i] = input(j, in, o->done, src, dst);
		wide[i] = (uint8_t)in->wide;
		any |= in->wide;
	}
	uint8_t *out = place(j, &o->write, o->done, dst);
	int64_t n = chunk_len(o, o->done);
	int fast = !any && j->sum != NULL && j->how != RM_BFLOAT && o->nin >= 2 && o->nin <= 8;
	if (!fast && j->how == RM_FLOAT) {
		return 0;
	}
	if (!fast) {
		rm_sum_wide(j->how, o->wide, out, n, o->nin, blocks, wide);
		return 1;
	}
	for (int i = o->nin; i < 8; i++) {
		blocks[i] = NULL;
	}
	j->sum(j->level, j->how == RM_HALF, out, n, o->nin, blocks[0], blocks[1], blocks[2], blocks[3], blocks[4], blocks[5],
	       blocks[6], blocks[7]);
	return 1;
}

const uint8_t *rm_need(struct rm_job *j, int k, int32_t *space, int64_t *off, int32_t *wide) {
	struct rm_op *o = &j->ops[j->need_op];
	if (k < 0) { // the result
		*space = o->write.space;
		*off = at(&o->write, j->need_chunk);
		*wide = o->wide;
		return o->write.space == RM_SCRATCH ? j->scratch + *off : NULL;
	}
	const struct rm_input *in = &j->inputs[o->in + k];
	*wide = in->wide;
	*space = in->recv >= 0 ? RM_SLOT : in->ref.space;
	*off = in->recv >= 0 ? 0 : at(&in->ref, j->need_chunk);
	if (*space == RM_SLOT || *space == RM_SCRATCH) {
		return input(j, in, j->need_chunk, NULL, NULL);
	}
	return NULL;
}

int rm_reduced(struct rm_job *j) {
	struct rm_op *o = &j->ops[j->need_op];
	j->need_op = -1;
	return release(j, o);
}

// compute does what is ready of an op. How many chunks, -1, or -2 if the caller
// must reduce.
static int compute(struct rm_job *j, int i, const uint8_t *src, uint8_t *dst) {
	struct rm_op *o = &j->ops[i];
	int n = 0;
	while (o->done < o->chunks && ready(j, o, o->done)) {
		if (o->kind == RM_OP_COPY) {
			uint8_t *to = place(j, &o->write, o->done, dst);
			const uint8_t *from = source(j, &o->read, o->done, src, dst);
			if (to != from) {
				memmove(to, from, (size_t)(chunk_len(o, o->done) * width(j, o->wide)));
			}
			o->done++;
			j->left--;
		} else if (in_c(j, o, src, dst)) {
			if (release(j, o) != RM_DONE) {
				return -1;
			}
		} else {
			j->need_op = i;
			j->need_chunk = o->done;
			j->need_elems = chunk_len(o, o->done);
			j->need_inputs = o->nin;
			return -2;
		}
		n++;
	}
	return n;
}

// pass does all that is possible now. How much, -1 or -2.
static int pass(struct rm_job *j, const uint8_t *src, uint8_t *dst) {
	int n = 0;
	for (int i = 0; i < j->nwires; i++) {
		struct rm_wire *w = &j->wires[i];
		int k = w->recv ? receive(j, w, dst) : 0;
		if (k < 0) {
			return -1;
		}
		n += k;
	}
	for (int i = 0; i < j->nops; i++) {
		if (j->ops[i].kind == RM_OP_REDUCE || j->ops[i].kind == RM_OP_COPY) {
			int k = compute(j, i, src, dst);
			if (k < 0) {
				return k;
			}
			n += k;
		}
	}
	for (int i = 0; i < j->nwires; i++) {
		struct rm_wire *w = &j->wires[i];
		int k = w->recv ? 0 : send_ready(j, w, src, dst);
		if (k < 0) {
			return -1;
		}
		n += k;
	}
	return n;
}

int rm_run(struct rm_job *j, const uint8_t *src, uint8_t *dst, int64_t slice) {
	int64_t begun = 0, idle = 0;
	unsigned looks = 0;
	int tired = 0; // 1: yield, 2: rest
	int got = 1;
	for (;;) {
		while (got > 0) { // without a completion nothing new is possible
			int n = pass(j, src, dst);
			if (n < 0) {
				return n == -2 ? RM_REDUCE : RM_BROKEN;
			}
			if (j->left == 0) {
				return RM_DONE;
			}
			got = n;
		}
		got = poll(j);
		if (got < 0) {
			return RM_BROKEN;
		}
		j->polls++;
		if (got > 0) {
			idle = 0;
			looks = 0;
			tired = 0;
			if (slice > 0) {
				continue;
			}
		}
		j->empty++;
		if (slice > 0 && tired == 0 && ++looks % LOOKS != 0) {
			relax();
			continue;
		}
		// Nothing has come for a while.
		if (__atomic_load_n(j->flag, __ATOMIC_ACQUIRE)) {
			return RM_STOPPED;
		}
		if (slice <= 0) {
			if (got == 0) {
				return RM_AGAIN;
			}
			continue;
		}
		int64_t now = rm_now();
		if (begun == 0) {
			begun = now;
		}
		if (idle == 0) {
			idle = now;
		}
		if (now - begun > slice) {
			return RM_AGAIN;
		}
		tired = now - idle > REST_AFTER ? 2 : now - idle > j->spin ? 1 : 0;
		if (tired == 1) {
			sched_yield();
		} else if (tired == 2) {
			struct timespec t = {0, REST};
			nanosleep(&t, NULL);
		}
	}
}
