// The messages of a task on a wire: their order, lengths and sequence tags, and
// the receives posted for them.
#ifndef RME_WIRE_H
#define RME_WIRE_H

#include "conn.h"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static inline int64_t at(const struct rme_ref *r, int64_t chunk) {
	return r->off + (r->window > 0 ? chunk % r->window : chunk) * r->stride;
}

static inline int64_t chunk_len(const struct rme_op *o, int64_t chunk) {
	return least(o->chunk_elems, o->elems - chunk * o->chunk_elems);
}

static inline int64_t width(const struct rme_task *t, int wide) { return wide ? 4 : t->elem; }

// message_bytes is the length of a message with a chunk, in whole frames, as
// plan.MessageBytes computes it.
static inline uint32_t message_bytes(const struct rme_task *t, const struct rme_op *o, int64_t chunk) {
	int64_t n = chunk_len(o, chunk) * width(t, o->wide);
	return (uint32_t)((n + t->tag + 4095) / 4096 * 4096);
}

// tag_of is the sequence tag of the message in front: operation and number.
static inline uint64_t tag_of(const struct rme_task *t, const struct rme_wire *w) {
	return 0x5447000000000000 ^ (t->seq & 0xffffffff) << 24 ^ (uint64_t)w->number;
}

__attribute__((noinline, cold, unused)) static int fail(struct rme_task *t, int kind, int conn, int err) {
	t->fail.kind = kind;
	t->fail.conn = conn;
	t->fail.err = err;
	return RME_BROKEN;
}

// send_credit tells the peer of a connection how many receives are posted:
// RME_DONE or RME_BROKEN.
static inline int send_credit(struct rme_task *t, int conn) {
	int err = t->conns[conn]->credits == NULL ? 0 : rme_send_credit(t->conns[conn], t->seq);
	return __builtin_expect(err == 0, 1) ? RME_DONE : fail(t, RME_FAIL_POST_SEND, conn, err);
}

// post_next posts the receive for the next message in a slot.
static inline int post_next(struct rme_task *t, struct rme_wire *w, struct rme_op *o, int64_t chunk) {
	struct rme_conn *c = t->conns[w->conn];
	int slot = (int)(c->recvs % (uint64_t)c->slots);
	uint64_t id = id_of(c, t->seq, RME_KIND_RECV, slot);
	c->recv_id[slot] = id;
	c->recvs++;
	int err = post_recv(c, c->recv + (size_t)slot * c->slot_bytes, message_bytes(t, o, chunk), id);
	return err == 0 ? RME_DONE : fail(t, RME_FAIL_POST_RECV, w->conn, err);
}

// cursor walks over the messages of a wire in the order that package plan
// documents (order of messages on a wire).
struct cursor {
	int64_t round, left, chunk;
	int32_t next, op;
};

static inline void walk(const struct rme_task *t, const struct rme_wire *w, struct cursor *c) {
	while (c->left > 0) {
		if (c->next == w->nops) {
			c->next = 0;
			c->round++;
		}
		int32_t op = t->wire_ops[w->first + c->next++];
		int64_t chunk = c->round - t->ops[op].lag;
		if (chunk >= 0 && chunk < t->ops[op].chunks) {
			c->left--;
			c->op = op;
			c->chunk = chunk;
			return;
		}
	}
	c->op = -1;
}

static inline struct cursor cursor_of(const struct rme_wire *w) {
	return (struct cursor){w->round, w->left, w->chunk, w->next, w->op};
}

static inline void advance(struct rme_task *t, struct rme_wire *w) {
	struct cursor c = cursor_of(w);
	walk(t, w, &c);
	w->round = c.round, w->left = c.left, w->chunk = c.chunk, w->next = c.next, w->op = c.op;
}

#endif
