// Taking completions from the queues of a task, and the cause of a failed
// batch. Part of run.c.
#ifndef RME_COMPLETIONS_H
#define RME_COMPLETIONS_H

#include <string.h>

#include "wire.h"

__attribute__((noinline, cold)) static int wrong_header(struct rme_task *t, struct rme_wire *w) {
	memcpy(&t->fail.header, t->conns[w->conn]->header_recv, sizeof t->fail.header);
	t->fail.expected = w->header;
	return fail(t, RME_FAIL_HEADER, w->conn, 0);
}

// take records one successful completion. 0, or RME_BROKEN.
static inline int take(struct rme_task *t, int conn, const struct rmv_wc *wc) {
	struct rme_conn *c = t->conns[conn];
	int slot = (int)(wc->wr_id >> 8 & 0xff), kind = (int)(wc->wr_id >> 16 & 0xff);
	uint64_t *id = NULL;
	switch (kind) {
	case RME_KIND_SEND:
		id = slot < c->slots ? &c->send_id[slot] : NULL;
		break;
	case RME_KIND_RECV:
		id = slot == (int)(c->recvs_done % (uint64_t)c->slots) ? &c->recv_id[slot] : NULL;
		break;
	case RME_KIND_HEADER_SEND:
		id = slot < RME_HEADERS ? &c->header_id[slot] : NULL;
		break;
	case RME_KIND_HEADER_RECV:
		id = &c->header_recv_id;
		break;
	case RME_KIND_CREDIT:
		id = slot < RME_CREDIT_WRITES ? &c->credit_id[slot] : NULL;
		break;
	}
	if (__builtin_expect(id == NULL || *id != wc->wr_id || wc->wr_id == 0, 0)) {
		t->fail.wc = *wc;
		return fail(t, RME_FAIL_STALE, conn, 0);
	}
	*id = 0;
	if (kind == RME_KIND_RECV) {
		c->recv_len[slot] = wc->byte_len;
		c->recvs_done++;
	} else if (kind == RME_KIND_HEADER_RECV) {
		c->header_in = 1;
		c->header_len = wc->byte_len;
	}
	return 0;
}

// refused finds the cause of a refused batch. An unexpected header in it is the
// cause, because wrong lengths follow from it.
__attribute__((noinline, cold)) static int refused(struct rme_task *t, int conn, int got, const struct rmv_wc *wc) {
	struct rme_conn *c = t->conns[conn];
	if (got >= 0 && got <= RME_BATCH) {
		for (int i = 0; i < got; i++) {
			if (wc[i].status == RMV_WC_SUCCESS && wc[i].wr_id == c->header_recv_id && !c->header_in) {
				c->header_in = 1;
			}
		}
	}
	for (int i = 0; i < t->nwires; i++) {
		struct rme_wire *w = &t->wires[i];
		if (w->conn == conn && w->recv && !w->begun && c->header_in && memcmp(c->header_recv, &w->header, sizeof w->header) != 0) {
			return wrong_header(t, w);
		}
	}
	int k = rmv_wc_cause(got, RME_BATCH, wc);
	t->fail.got = got;
	if (k < 0) {
		return fail(t, RME_FAIL_POLL, conn, 0);
	}
	t->fail.wc = wc[k];
	return fail(t, RME_FAIL_COMPLETION, conn, 0);
}

// new_credits reports whether the peer has posted receives since the last call.
static inline int new_credits(struct rme_conn *c) {
	if (c->credits == NULL) {
		return 0;
	}
	uint64_t n = credits(c);
	int grown = n != c->credits_seen;
	c->credits_seen = n;
	return grown;
}

// poll takes all completions and sends credits for new receives. It returns the
// number of completions plus that of peers with new credits, or -1.
static inline int poll(struct rme_task *t) {
	struct rmv_wc wc[RME_BATCH];
	int all = 0;
	for (int k = 0; k < t->nconns; k++) {
		int got = rmv_poll_cq(t->conns[k]->cq, RME_BATCH, wc);
		if (rmv_wc_bad(got, RME_BATCH, wc)) {
			refused(t, k, got, wc);
			return -1;
		}
		for (int i = 0; i < got; i++) {
			if (take(t, k, &wc[i]) != 0) {
				return -1;
			}
		}
		if (send_credit(t, k) != RME_DONE) {
			return -1;
		}
		all += got + new_credits(t->conns[k]);
	}
	return all;
}

#endif
