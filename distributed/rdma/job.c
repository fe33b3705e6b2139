// What is done around the inner loop: the memory of jobs, the search for the
// cause of a flush, the wait for sends when a group closes.
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine_wire.h"

int64_t rm_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rm_post_head(struct rm_conn *c, uint64_t seq) {
	uint64_t id = id_of(c, seq, RM_KIND_HEAD_RECV, 0);
	c->head_recv_id = id;
	c->head_recvs++;
	return post_recv(c, c->head_recv, c->head_bytes, id);
}

int rm_grant(struct rm_conn *c, uint64_t seq) {
	uint64_t posted = c->recvs + c->head_recvs;
	int slot = (int)(c->grants % RM_GRANTS);
	if (c->room == NULL || posted == c->told || c->grant_id[slot] != 0) {
		return 0;
	}
	uint8_t *word = c->grant + (size_t)slot * RM_GRANT_STEP;
	memcpy(word, &posted, sizeof posted);
	c->told = posted;
	c->grants++;
	c->grant_id[slot] = id_of(c, seq, RM_KIND_GRANT, slot);
	struct rmv_sge sge = {.addr = (uint64_t)(uintptr_t)word, .length = sizeof posted, .lkey = c->lkey};
	struct rmv_send_wr wr = {.wr_id = c->grant_id[slot], .sg_list = &sge, .num_sge = 1, .opcode = RMV_WR_RDMA_WRITE,
	                         .send_flags = RMV_SEND_SIGNALED, .remote_addr = c->far, .rkey = c->far_key};
	int err;
	rm_post_send(c->qp, &wr, 1, &err);
	return err;
}

int rm_granted(struct rm_conn *c, uint64_t id) {
	int slot = (int)(id >> 8 & 0xff), kind = (int)(id >> 16 & 0xff);
	if (kind != RM_KIND_GRANT || slot >= RM_GRANTS || c->grant_id[slot] != id) {
		return 0;
	}
	c->grant_id[slot] = 0;
	return 1;
}

uint64_t rm_room(const struct rm_conn *c) { return room(c); }

int rm_scan(struct rm_conn *const *conns, int n, int64_t limit, struct rm_fail *f) {
	struct rmv_wc wc[RM_BATCH];
	int64_t end = rm_now() + limit;
	do {
		for (int k = 0; k < n; k++) {
			int got = rm_poll_cq(conns[k]->cq, RM_BATCH, wc);
			int i = rm_wc_cause(got, RM_BATCH, wc);
			if (got >= 0 && got <= RM_BATCH && i >= 0 && wc[i].status != RMV_WC_WR_FLUSH_ERR) {
				*f = (struct rm_fail){.kind = RM_FAIL_COMPLETION, .conn = k, .wc = wc[i]};
				return 1;
			}
		}
		sched_yield();
	} while (rm_now() < end);
	return 0;
}

int rm_drain(struct rm_conn *c, int64_t limit) {
	struct rmv_wc wc[RM_BATCH];
	int64_t end = rm_now() + limit;
	for (;;) {
		int left = 0;
		for (int i = 0; i < c->slots; i++) {
			left += c->send_id[i] != 0;
		}
		for (int i = 0; i < RM_HEADS; i++) {
			left += c->head_id[i] != 0;
		}
		if (left == 0 || rm_now() > end) {
			return left;
		}
		int got = rm_poll_cq(c->cq, RM_BATCH, wc);
		if (rm_wc_bad(got, RM_BATCH, wc)) {
			return left;
		}
		for (int i = 0; i < got; i++) {
			int slot = (int)(wc[i].wr_id >> 8 & 0xff), kind = (int)(wc[i].wr_id >> 16 & 0xff);
			if (kind == RM_KIND_SEND && slot < c->slots) {
				c->send_id[slot] = 0;
			} else if (kind == RM_KIND_HEAD_SEND && slot < RM_HEADS) {
				c->head_id[slot] = 0;
			}
		}
		if (got == 0) {
			sched_yield();
		}
	}
}

// Memory of jobs

struct rm_job *rm_job_new(const struct rm_job *shape, const struct rm_op *ops, const struct rm_dep *deps, int ndeps,
                          const struct rm_input *inputs, int ninputs, const struct rm_wire *wires,
                          const int32_t *wire_ops, int nwire_ops, struct rm_conn *const *conns) {
	struct rm_job *j = calloc(1, sizeof *j);
	if (j == NULL) {
		return NULL;
	}
	*j = *shape;
	j->ops = calloc((size_t)j->nops + 1, sizeof *ops);
	j->deps = calloc((size_t)ndeps + 1, sizeof *deps);
	j->inputs = calloc((size_t)ninputs + 1, sizeof *inputs);
	j->wires = calloc((size_t)j->nwires + 1, sizeof *wires);
	j->wire_ops = calloc((size_t)nwire_ops + 1, sizeof *wire_ops);
	j->conns = calloc((size_t)j->nconns + 1, sizeof *conns);
	if (!j->ops || !j->deps || !j->inputs || !j->wires || !j->wire_ops || !j->conns) {
		rm_job_free(j);
		return NULL;
	}
	if (j->nops > 0) {
		memcpy(j->ops, ops, (size_t)j->nops * sizeof *ops);
	}
	if (ndeps > 0) {
		memcpy(j->deps, deps, (size_t)ndeps * sizeof *deps);
	}
	if (ninputs > 0) {
		memcpy(j->inputs, inputs, (size_t)ninputs * sizeof *inputs);
	}
	if (j->nwires > 0) {
		memcpy(j->wires, wires, (size_t)j->nwires * sizeof *wires);
		memcpy(j->wire_ops, wire_ops, (size_t)nwire_ops * sizeof *wire_ops);
		memcpy(j->conns, conns, (size_t)j->nconns * sizeof(struct rm_conn *));
	}
	return j;
}

void rm_job_free(struct rm_job *j) {
	if (j == NULL) {
		return;
	}
	free(j->ops);
	free(j->deps);
	free(j->inputs);
	free(j->wires);
	free(j->wire_ops);
	free(j->conns);
	free(j);
}
