// Parts of the inner loop, inline: the order of the messages on a wire, their
// lengths and tags, posting. Only the engine's own files include it.
#ifndef RM_ENGINE_WIRE_H
#define RM_ENGINE_WIRE_H

#include <stddef.h>

#include "engine.h"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static inline uint64_t id_of(const struct rm_conn *c, uint64_t seq, int kind, int slot) {
	return (uint64_t)(c->epoch & 0xffff) << 48 | (seq & 0xffff) << 32 | (uint64_t)(c->rail & 0xff) << 24 |
	       (uint64_t)kind << 16 | (uint64_t)slot << 8 | (uint64_t)(c->peer & 0xff);
}

static inline int64_t at(const struct rm_ref *r, int64_t chunk) {
	return r->off + (r->window > 0 ? chunk % r->window : chunk) * r->stride;
}

static inline int64_t chunk_len(const struct rm_op *o, int64_t chunk) {
	return least(o->chunk_elems, o->elems - chunk * o->chunk_elems);
}

static inline int64_t width(const struct rm_job *j, int wide) { return wide ? 4 : j->elem; }

// message_bytes is plan.MessageBytes: whole frames.
static inline uint32_t message_bytes(const struct rm_job *j, const struct rm_op *o, int64_t chunk) {
	int64_t n = (j->whole ? o->chunk_elems : chunk_len(o, chunk)) * width(j, o->wide);
	return (uint32_t)((n + j->tag + 4095) / 4096 * 4096);
}

// tag_of is what a message ends in: the operation and the message's number.
static inline uint64_t tag_of(const struct rm_job *j, const struct rm_wire *w) {
	return 0x5447000000000000 ^ (j->seq & 0xffffffff) << 24 ^ (uint64_t)w->number;
}

// Posting

static inline int post_recv(struct rm_conn *c, uint8_t *to, uint32_t n, uint64_t id) {
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)to, .length = n, .lkey = c->lkey};
	struct rmv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	int err;
	rm_post_recv(c->qp, &wr, 1, &err);
	return err;
}

static inline uint64_t room(const struct rm_conn *c) { return __atomic_load_n(c->room, __ATOMIC_ACQUIRE); }

static inline int post_send(struct rm_conn *c, const uint8_t *from, uint32_t n, uint64_t id) {
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)from, .length = n, .lkey = c->lkey};
	struct rmv_send_wr wr = {
	    .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = RMV_WR_SEND, .send_flags = RMV_SEND_SIGNALED};
	int err;
	rm_post_send(c->qp, &wr, 1, &err);
	return err;
}

__attribute__((noinline, cold, unused)) static int fail(struct rm_job *j, int kind, int conn, int err) {
	j->fail.kind = kind;
	j->fail.conn = conn;
	j->fail.err = err;
	return RM_BROKEN;
}

// grant tells the peer of a connection what receives are posted. RM_DONE or
// RM_BROKEN.
static inline int grant(struct rm_job *j, int conn) {
	int err = j->conns[conn]->room == NULL ? 0 : rm_grant(j->conns[conn], j->seq);
	return __builtin_expect(err == 0, 1) ? RM_DONE : fail(j, RM_FAIL_POST_SEND, conn, err);
}

// post_next posts the receive for the next message in a slot.
static inline int post_next(struct rm_job *j, struct rm_wire *w, struct rm_op *o, int64_t chunk) {
	struct rm_conn *c = j->conns[w->conn];
	int slot = (int)(c->recvs % (uint64_t)c->slots);
	uint64_t id = id_of(c, j->seq, RM_KIND_RECV, slot);
	c->recv_id[slot] = id;
	c->recvs++;
	int err = post_recv(c, c->recv + (size_t)slot * c->slot_bytes, message_bytes(j, o, chunk), id);
	return err == 0 ? RM_DONE : fail(j, RM_FAIL_POST_RECV, w->conn, err);
}

// Walking over the messages of a wire: plan.Cursor

struct cursor {
	int64_t round, left, chunk;
	int32_t next, op;
};

static inline void walk(const struct rm_job *j, const struct rm_wire *w, struct cursor *c) {
	while (c->left > 0) {
		if (c->next == w->nops) {
			c->next = 0;
			c->round++;
		}
		int32_t op = j->wire_ops[w->first + c->next++];
		int64_t chunk = c->round - j->ops[op].lag;
		if (chunk >= 0 && chunk < j->ops[op].chunks) {
			c->left--;
			c->op = op;
			c->chunk = chunk;
			return;
		}
	}
	c->op = -1;
}

static inline struct cursor cursor_of(const struct rm_wire *w) {
	return (struct cursor){w->round, w->left, w->chunk, w->next, w->op};
}

static inline void advance(struct rm_job *j, struct rm_wire *w) {
	struct cursor c = cursor_of(w);
	walk(j, w, &c);
	w->round = c.round, w->left = c.left, w->chunk = c.chunk, w->next = c.next, w->op = c.op;
}

#endif
