// Posting on one connection, inline. It knows nothing of tasks.
#ifndef RME_CONN_H
#define RME_CONN_H

#include <errno.h>

#include "rm_engine.h"

// id_of returns the wr_id of a request: epoch, operation, rail, kind, slot and
// peer.
static inline uint64_t id_of(const struct rme_conn *c, uint64_t seq, int kind, int slot) {
	return (uint64_t)(c->epoch & 0xffff) << 48 | (seq & 0xffff) << 32 | (uint64_t)(c->rail & 0xff) << 24 |
	       (uint64_t)kind << 16 | (uint64_t)slot << 8 | (uint64_t)(c->peer & 0xff);
}

static inline int post_recv(struct rme_conn *c, uint8_t *to, uint32_t n, uint64_t id) {
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)to, .length = n, .lkey = c->lkey};
	struct rmv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	int err;
	rmv_post_recv(c->qp, &wr, 1, &err);
	return err;
}

// credits returns how many receives the peer has posted so far.
static inline uint64_t credits(const struct rme_conn *c) { return __atomic_load_n(c->credits, __ATOMIC_ACQUIRE); }

// post_send never posts a message without bytes, because on macOS 27.0 it is
// lost and never completes (MCDMA, one source: docs/testing.md).
static inline int post_send(struct rme_conn *c, const uint8_t *from, uint32_t n, uint64_t id) {
	if (__builtin_expect(n == 0, 0)) {
		return EINVAL;
	}
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)from, .length = n, .lkey = c->lkey};
	struct rmv_send_wr wr = {
	    .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = RMV_WR_SEND, .send_flags = RMV_SEND_SIGNALED};
	int err;
	rmv_post_send(c->qp, &wr, 1, &err);
	return err;
}

#endif
