// Queue pairs: creation, transitions, destruction.
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct qp *slot_of(struct rmv_qp *h) { return &fab->qp[((struct fake_qp *)h)->slot]; }

EXPORT struct rmv_qp *ibv_create_qp(struct rmv_pd *pd, struct rmv_qp_init_attr *attr) {
	int dev = ((struct fake_context *)pd->context)->dev, fails, e = 0;
	const struct device *d = &fab->dev[dev];
	const struct rmv_qp_cap *cap = &attr->cap;
	e = fault_call(ON_CREATE_QP, dev, &fails);
	if (!fails && (attr->qp_type != RMV_QPT_RC || !d->rc) && attr->qp_type != RMV_QPT_UC) {
		fails = 1;
		e = 102;
	}
	if (!fails && (attr->send_cq == NULL || attr->recv_cq == NULL || cap->max_send_wr > (uint32_t)d->max_wr ||
	               cap->max_recv_wr > (uint32_t)d->max_wr || cap->max_send_sge > 1 || cap->max_recv_sge > 1 ||
	               cap->max_inline_data > (d->link == LINK_TB ? 0 : 64))) {
		fails = 1;
		e = EINVAL;
	}
	struct fake_qp *h = fails ? NULL : calloc(1, sizeof *h);
	if (h == NULL) {
		return refuse(NULL, fails ? abs(e) : ENOMEM);
	}
	fabric_lock(&fab->lock);
	sweep();
	int have = 0;
	h->slot = -1;
	for (int i = 0; i < MAX_QPS; i++) {
		if (atomic_load(&fab->qp[i].used)) {
			have += fab->qp[i].dev == dev;
		} else if (h->slot < 0) {
			h->slot = i;
		}
	}
	if (have >= d->max_qp || h->slot < 0) {
		fabric_unlock(&fab->lock);
		return refuse(h, EBUSY);
	}
	struct qp *q = &fab->qp[h->slot];
	fabric_lock(&q->lock); // a peer of the slot's former owner may still look at it
	q->gen = (uint32_t)(atomic_fetch_add(&fab->gen, 1) + 1);
	q->qpn = (q->gen * MAX_QPS + (uint32_t)h->slot) & 0xffffff;
	q->dev = dev;
	q->pd = ((struct fake_pd *)pd)->slot;
	q->scq = ((struct fake_cq *)attr->send_cq)->slot;
	q->rcq = ((struct fake_cq *)attr->recv_cq)->slot;
	q->type = (int)attr->qp_type;
	q->sig_all = attr->sq_sig_all;
	q->pid = getpid();
	q->cap = *cap;
	q->cap.max_send_wr = grant_told(d->grant_send, cap->max_send_wr);
	q->cap.max_recv_wr = grant_told(d->grant_recv, cap->max_recv_wr);
	q->sq_room = (int)grant_real(d->grant_send, cap->max_send_wr);
	q->rq_room = (int)grant_real(d->grant_recv, cap->max_recv_wr);
	q->born = atomic_fetch_add(&fab->gen, 1);
	q->losses = atomic_load(&d->losses);
	q->spoilt = 0;
	q->dest = q->dest_dev = q->cable = -1;
	q->dest_qpn = q->sq_psn = q->rq_psn = 0;
	q->rnr = q->port = q->unsignaled = 0;
	q->last_send = q->last_recv = 0;
	q->sq_head = q->sq_tail = q->rq_head = q->rq_tail = 0;
	atomic_store(&q->killed, 0);
	atomic_store(&q->gone, 0);
	q->looked = 0;
	atomic_store(&q->sq_used, 0);
	atomic_store(&q->rq_used, 0);
	atomic_store(&q->state, RMV_QPS_RESET);
	atomic_fetch_or(&fab->cq[q->scq].qps[h->slot / 64], 1ull << (h->slot % 64));
	atomic_fetch_or(&fab->cq[q->rcq].qps[h->slot / 64], 1ull << (h->slot % 64));
	atomic_store(&q->used, 1);
	fabric_unlock(&q->lock);
	fabric_unlock(&fab->lock);
	attr->cap = q->cap;
	h->v.context = pd->context;
	h->v.pd = pd;
	h->v.send_cq = attr->send_cq;
	h->v.recv_cq = attr->recv_cq;
	h->v.qp_num = q->qpn;
	h->v.qp_type = attr->qp_type;
	return &h->v;
}

EXPORT int ibv_destroy_qp(struct rmv_qp *qp) {
	struct fake_qp *h = (struct fake_qp *)qp;
	struct qp *q = slot_of(qp);
	int fails, e = fault_call(ON_DESTROY_QP, q->dev, &fails);
	if (fails) {
		return e;
	}
	int peer = q->dest;
	// Its sends are guarded by the peer's lock, its receives by its own lock.
	struct qp *first = q, *second = peer >= 0 ? &fab->qp[peer] : q;
	if (second < first) {
		struct qp *t = first;
		first = second;
		second = t;
	}
	fabric_lock(&first->lock);
	if (second != first) {
		fabric_lock(&second->lock);
	}
	atomic_store(&q->used, 0);
	atomic_store(&q->state, RMV_QPS_RESET);
	q->sq_head = q->sq_tail = q->rq_head = q->rq_tail = 0;
	q->dest = -1;
	uint64_t bit = ~(1ull << (h->slot % 64));
	struct cq *cqs[2] = {&fab->cq[q->scq], &fab->cq[q->rcq]};
	for (int i = 0; i < 2; i++) {
		atomic_fetch_and(&cqs[i]->qps[h->slot / 64], bit);
	}
	if (second != first) {
		fabric_unlock(&second->lock);
	}
	fabric_unlock(&first->lock);
	cq_forget(q->scq, h->slot);
	cq_forget(q->rcq, h->slot);
	if (peer >= 0) {
		qp_notify(&fab->qp[peer]); // from now on what it sends finds no receiver
	}
	free(h);
	return 0;
}

// route finds the device that an address leads to, -1 if there is none.
static int route(const struct device *from, const struct rmv_ah_attr *ah) {
	for (int i = 0; i < fab->devs; i++) {
		const struct device *d = &fab->dev[i];
		if (!ah->is_global) {
			if (from->link == LINK_IB && d->link == LINK_IB && d->lid == ah->dlid) {
				return i;
			}
			continue;
		}
		for (int k = 0; k < d->gids; k++) {
			if (memcmp(d->gid[k], ah->dgid.raw, 16) == 0) {
				return i;
			}
		}
	}
	return -1;
}

// joined finds how two devices are connected: by a cable, or -1 with *ok set
// for a switch or for the device itself.
static int joined(int a, int b, int *ok) {
	*ok = 1;
	for (int i = 0; i < fab->cables; i++) {
		const struct cable *c = &fab->cable[i];
		if ((c->a == a && c->b == b) || (c->a == b && c->b == a)) {
			return i;
		}
	}
	*ok = a == b || (fab->dev[a].swtch >= 0 && fab->dev[a].swtch == fab->dev[b].swtch);
	return -1;
}

static int all_zero(const uint8_t *p, int n) {
	for (int i = 0; i < n; i++) {
		if (p[i] != 0) {
			return 0;
		}
	}
	return 1;
}

// family is 4 for a mapped IPv4 address, 6 for a link-local one, else 0.
static int family(const uint8_t gid[16]) {
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid, mapped, 12) == 0 ? 4 : gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? 6
	                                                                                    : 0;
}

static int to_rtr(struct qp *q, const struct rmv_qp_attr *a) {
	const struct device *d = &fab->dev[q->dev];
	const struct rmv_ah_attr *ah = &a->ah_attr;
	if (a->path_mtu < 1 || a->path_mtu > (uint32_t)d->mtu || ah->port_num != 1) {
		return EINVAL;
	}
	if (ah->is_global) {
		if (ah->sgid_index >= d->gids || all_zero(d->gid[ah->sgid_index], 16) || all_zero(ah->dgid.raw, 16)) {
			return EINVAL;
		}
		// Our own address must be of the same family as the peer's. A UUID is no
		// address.
		int mine = family(d->gid[ah->sgid_index]), theirs = family(ah->dgid.raw);
		if (mine != theirs || (d->link == LINK_TB && mine == 0)) {
			return EINVAL;
		}
	} else if (d->link != LINK_IB) {
		return EINVAL; // here addresses are GIDs only
	}
	int to = route(d, ah), ok = 0, cable = to < 0 ? -1 : joined(q->dev, to, &ok);
	if (!ok && d->unreachable != 0) {
		return d->unreachable;
	}
	fabric_lock(&q->lock);
	q->dest_dev = ok ? to : -1;
	q->cable = cable;
	q->dest_qpn = a->dest_qp_num;
	q->dest = (int)(a->dest_qp_num % MAX_QPS);
	q->rq_psn = a->rq_psn;
	atomic_store(&q->state, RMV_QPS_RTR);
	fabric_unlock(&q->lock);
	// Messages may have arrived earlier; they are checked again.
	qp_notify(q);
	if (atomic_load(&fab->qp[q->dest].used)) {
		qp_notify(&fab->qp[q->dest]);
	}
	return 0;
}

EXPORT int ibv_modify_qp(struct rmv_qp *qp, struct rmv_qp_attr *a, int mask) {
	struct qp *q = slot_of(qp);
	int from = atomic_load(&q->state), to = (int)a->qp_state, rc = q->type == RMV_QPT_RC, fails, e;
	if ((mask & RMV_QP_STATE) == 0) {
		return EINVAL;
	}
	if (to == RMV_QPS_ERR) {
		if (mask != RMV_QP_STATE) {
			return EINVAL;
		}
		qp_fail(q);
		qp->state = RMV_QPS_ERR;
		return 0;
	}
	e = to == RMV_QPS_INIT  ? fault_call(ON_INIT, q->dev, &fails)
	    : to == RMV_QPS_RTR ? (q->spoilt ? (fails = 1, EBUSY) : fault_call(ON_RTR, q->dev, &fails))
	    : to == RMV_QPS_RTS ? fault_call(ON_RTS, q->dev, &fails)
	                        : (fails = 1, EINVAL);
	if (fails) {
		q->spoilt |= to == RMV_QPS_RTR && fab->dev[q->dev].once;
		return e;
	}
	int init = RMV_QP_STATE | RMV_QP_PKEY_INDEX | RMV_QP_PORT | RMV_QP_ACCESS_FLAGS;
	int rtr = RMV_QP_STATE | RMV_QP_AV | RMV_QP_PATH_MTU | RMV_QP_DEST_QPN | RMV_QP_RQ_PSN |
	          (rc ? RMV_QP_MAX_DEST_RD_ATOMIC | RMV_QP_MIN_RNR_TIMER : 0);
	int rts = RMV_QP_STATE | RMV_QP_SQ_PSN |
	          (rc ? RMV_QP_TIMEOUT | RMV_QP_RETRY_CNT | RMV_QP_RNR_RETRY | RMV_QP_MAX_QP_RD_ATOMIC : 0);
	e = EINVAL;
	if (to == RMV_QPS_INIT && from == RMV_QPS_RESET && mask == init && a->port_num == 1 && a->pkey_index == 0) {
		q->port = a->port_num;
		q->access = (int)a->qp_access_flags;
		atomic_store(&q->state, RMV_QPS_INIT);
		e = 0;
	} else if (to == RMV_QPS_RTR && from == RMV_QPS_INIT && mask == rtr) {
		e = to_rtr(q, a);
		q->spoilt = e != 0 && fab->dev[q->dev].once;
	} else if (to == RMV_QPS_RTS && from == RMV_QPS_RTR && mask == rts) {
		q->sq_psn = a->sq_psn;
		q->rnr = rc ? a->rnr_retry : 0;
		atomic_store(&q->state, RMV_QPS_RTS);
		e = 0;
	}
	if (e == 0) {
		qp->state = (uint32_t)to;
	}
	return e;
}

EXPORT int ibv_query_qp(struct rmv_qp *qp, struct rmv_qp_attr *attr, int mask, struct rmv_qp_init_attr *init) {
	struct qp *q = slot_of(qp);
	(void)mask;
	memset(attr, 0, sizeof *attr);
	memset(init, 0, sizeof *init);
	attr->qp_state = attr->cur_qp_state = (uint32_t)atomic_load(&q->state);
	attr->cap = init->cap = q->cap;
	attr->port_num = (uint8_t)q->port;
	attr->dest_qp_num = q->dest_qpn;
	attr->sq_psn = q->sq_psn;
	attr->rq_psn = q->rq_psn;
	init->qp_type = (uint32_t)q->type;
	init->sq_sig_all = q->sig_all;
	return 0;
}
