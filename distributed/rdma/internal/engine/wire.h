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

// message_bytes returns the length of a message with a chunk, in whole frames,
// as plan.MessageBytes computes it.
static inline uint32_t message_bytes(const struct rme_task *t, const struct rme_op *o, int64_t chunk) {
	int64_t n = chunk_len(o, chunk) * width(t, o->wide);
	return (uint32_t)((n + t->tag + 4095) / 4096 * 4096);
}

// header_message returns the length of the message with the header and its
// chunk, in whole frames.
static inline uint32_t header_message(int64_t embedded) {
	return (uint32_t)(((int64_t)sizeof(struct rme_header) + embedded + 4095) / 4096 * 4096);
}

// tag_of returns the sequence tag of the message in front: operation and
// number.
static inline uint64_t tag_of(const struct rme_task *t, const struct rme_wire *w) {
	return 0x5447000000000000 ^ (t->seq & 0xffffffff) << 24 ^ (uint64_t)w->number;
}

__attribute__((noinline, cold, unused)) static int fail(struct rme_task *t, int kind, int conn, int err) {
	t->fail.kind = kind;
	t->fail.conn = conn;
	t->fail.err = err;
	return RME_BROKEN;
}

// send_credit announces to the peer of a connection how many receives are
// posted: RME_DONE or RME_BROKEN.
static inline int send_credit(struct rme_task *t, int conn) {
	int err = t->conns[conn]->credits == NULL ? 0 : rme_send_credit(t->conns[conn], t->seq);
	return __builtin_expect(err == 0, 1) ? RME_DONE : fail(t, RME_FAIL_POST_SEND, conn, err);
}

// walk moves to the next message of a wire in the order that package plan
// documents (order of messages on a wire).
static inline void walk(const struct rme_task *t, const struct rme_wire *w, struct rme_cursor *c) {
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

static inline struct rme_cursor cursor_of(const struct rme_wire *w) {
	return (struct rme_cursor){w->round, w->left, w->chunk, w->next, w->op};
}

static inline void advance(struct rme_task *t, struct rme_wire *w) {
	struct rme_cursor c = cursor_of(w);
	walk(t, w, &c);
	w->round = c.round, w->left = c.left, w->chunk = c.chunk, w->next = c.next, w->op = c.op;
}

// post_next posts the receive for the next message in a slot.
static inline int post_next(struct rme_task *t, struct rme_wire *w) {
	struct rme_conn *c = t->conns[w->conn];
	int slot = (int)(c->recvs % (uint64_t)c->slots);
	uint64_t id = id_of(c, t->seq, RME_KIND_RECV, slot);
	c->recv_id[slot] = id;
	c->recvs++;
	uint32_t n = message_bytes(t, &t->ops[w->ahead.op], w->ahead.chunk);
	walk(t, w, &w->ahead);
	int err = post_recv(c, c->recv + (size_t)slot * c->slot_bytes, n, id);
	return err == 0 ? RME_DONE : fail(t, RME_FAIL_POST_RECV, w->conn, err);
}

// odd_length notes a completion that states a wrong length for a message with
// the right header or tag.
__attribute__((noinline, cold, unused)) static void odd_length(struct rme_task *t, int conn, uint32_t len, uint32_t want) {
	t->odd_lengths++;
	t->odd_conn = conn;
	t->odd_len = len;
	t->odd_want = want;
}

// wrong_length fails the task because of a length.
__attribute__((noinline, cold, unused)) static int wrong_length(struct rme_task *t, int conn, uint32_t len, uint32_t want) {
	t->fail.want = want;
	t->fail.wc.byte_len = len;
	return fail(t, RME_FAIL_LENGTH, conn, 0);
}

#endif
