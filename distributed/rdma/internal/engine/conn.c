// Connections outside the inner loop: the standing receive, credits, the search
// for the cause of a flush, the wait for sends when a group closes.
#include <sched.h>
#include <string.h>
#include <time.h>

#include "conn.h"

int64_t rme_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rme_post_header(struct rme_conn *c, uint64_t seq) {
	uint64_t id = id_of(c, seq, RME_KIND_HEADER_RECV, 0);
	c->header_recv_id = id;
	c->header_recvs++;
	return post_recv(c, c->header_recv, c->header_bytes, id);
}

int rme_send_credit(struct rme_conn *c, uint64_t seq) {
	uint64_t posted = c->recvs + c->header_recvs;
	int slot = (int)(c->credit_writes % RME_CREDIT_WRITES);
	if (c->credits == NULL || posted == c->credits_sent || c->credit_id[slot] != 0) {
		return 0;
	}
	uint8_t *word = c->credit_words + (size_t)slot * RME_CREDIT_STEP;
	memcpy(word, &posted, sizeof posted);
	c->credits_sent = posted;
	c->credit_writes++;
	c->credit_id[slot] = id_of(c, seq, RME_KIND_CREDIT, slot);
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)word, .length = sizeof posted, .lkey = c->lkey};
	struct rmv_send_wr wr = {.wr_id = c->credit_id[slot], .sg_list = &sge, .num_sge = 1, .opcode = RMV_WR_RDMA_WRITE,
	                         .send_flags = RMV_SEND_SIGNALED, .remote_addr = c->peer_credits, .rkey = c->peer_credits_key};
	int err;
	rmv_post_send(c->qp, &wr, 1, &err);
	return err;
}

int rme_credit_sent(struct rme_conn *c, uint64_t id) {
	int slot = (int)(id >> 8 & 0xff), kind = (int)(id >> 16 & 0xff);
	if (kind != RME_KIND_CREDIT || slot >= RME_CREDIT_WRITES || c->credit_id[slot] != id) {
		return 0;
	}
	c->credit_id[slot] = 0;
	return 1;
}

uint64_t rme_credits(const struct rme_conn *c) { return credits(c); }

int rme_scan(struct rme_conn *const *conns, int n, int64_t limit, struct rme_fail *f) {
	struct rmv_wc wc[RME_BATCH];
	int64_t end = rme_now() + limit;
	do {
		for (int k = 0; k < n; k++) {
			int got = rmv_poll_cq(conns[k]->cq, RME_BATCH, wc);
			int i = rmv_wc_cause(got, RME_BATCH, wc);
			if (got >= 0 && got <= RME_BATCH && i >= 0 && wc[i].status != RMV_WC_WR_FLUSH_ERR) {
				*f = (struct rme_fail){.kind = RME_FAIL_COMPLETION, .conn = k, .wc = wc[i]};
				return 1;
			}
		}
		sched_yield();
	} while (rme_now() < end);
	return 0;
}

int rme_drain(struct rme_conn *c, int64_t limit) {
	struct rmv_wc wc[RME_BATCH];
	int64_t end = rme_now() + limit;
	for (;;) {
		int left = 0;
		for (int i = 0; i < c->slots; i++) {
			left += c->send_id[i] != 0;
		}
		for (int i = 0; i < RME_HEADERS; i++) {
			left += c->header_id[i] != 0;
		}
		if (left == 0 || rme_now() > end) {
			return left;
		}
		int got = rmv_poll_cq(c->cq, RME_BATCH, wc);
		if (rmv_wc_bad(got, RME_BATCH, wc)) {
			return left;
		}
		for (int i = 0; i < got; i++) {
			int slot = (int)(wc[i].wr_id >> 8 & 0xff), kind = (int)(wc[i].wr_id >> 16 & 0xff);
			if (kind == RME_KIND_SEND && slot < c->slots) {
				c->send_id[slot] = 0;
			} else if (kind == RME_KIND_HEADER_SEND && slot < RME_HEADERS) {
				c->header_id[slot] = 0;
			}
		}
		if (got == 0) {
			sched_yield();
		}
	}
}
