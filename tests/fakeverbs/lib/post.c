// Posting: what a queue pair accepts, and what the script does to it.
#include "fake.h"

#include <errno.h>
#include <string.h>

static struct qp *slot_of(struct rmv_qp *h) { return &fab->qp[((struct fake_qp *)h)->slot]; }

// kill_part does to the queue pair's host, port, direction or rail what an action says.
static void kill_part(struct qp *q, int action) {
	switch (action) {
	case DO_KILL_HOST:
		kill_host(fab->dev[q->dev].host, HOST_DEAD);
		break;
	case DO_PORT_DOWN:
		port_set(fab, q->dev, RMV_PORT_DOWN);
		break;
	case DO_KILL_DIRECTION:
		atomic_store(&q->killed, 1);
		break;
	case DO_KILL_RAIL:
		if (q->cable >= 0) {
			cable_set(fab, &fab->cable[q->cable], 1);
		}
		break;
	}
}

// post_fault counts a call and prepares its refusal: *room is how many requests
// the call accepts before it fails.
static int post_fault(int event, struct qp *q, int *room, int *fails) {
	if (fab->dev[q->dev].crash && link_lost(q)) {
		crash();
	}
	const struct fault *f = fault_at(event, q->dev, q->dest_dev);
	*room = INT32_MAX;
	*fails = 0;
	if (f == NULL) {
		return 0;
	}
	switch (f->action) {
	case DO_ERRNO:
		*room = f->accept;
		*fails = 1;
		return (int)f->arg;
	case DO_CRASH:
		crash();
		break;
	default:
		kill_part(q, f->action);
	}
	return 0;
}

// plan_send marks a message with the fault that the script has for it.
static void plan_send(struct qp *q, struct send_slot *s) {
	const struct fault *f = fault_at_message(ON_SEND, q->dev, q->dest_dev, s->len);
	if (f == NULL) {
		return;
	}
	switch (f->action) {
	case DO_STATUS:
		s->status = (uint32_t)f->arg;
		s->vendor = f->vendor;
		s->flush_first = (uint8_t)f->flush_first;
		break;
	case DO_DROP:
		s->drop = 1;
		break;
	case DO_SWALLOW:
		s->swallow = 1;
		break;
	case DO_DUP:
		s->dup = 1;
		break;
	case DO_DELAY:
		s->until = now_ns() + (uint64_t)f->arg * 1000;
		break;
	case DO_HOLD:
		s->hold = atomic_load(&fab->messages) + (uint64_t)f->arg;
		break;
	case DO_CORRUPT:
		s->corrupt = f->arg;
		break;
	default:
		kill_part(q, f->action);
	}
}

// post_result is what a post returns: rc, with the sign of the provider, or the refusal of a fault.
static int post_result(const struct device *d, int rc, int fails, int refusal) {
	if (rc == 0) return fails ? refusal : 0;
	return d->negative ? -rc : rc;
}

int fake_post_send(struct rmv_qp *h, struct rmv_send_wr *wr, struct rmv_send_wr **bad) {
	struct qp *q = slot_of(h);
	const struct device *d = &fab->dev[q->dev];
	int state = atomic_load(&q->state), room, fails;
	int refusal = post_fault(ON_POST_SEND, q, &room, &fails), rc = 0;
	pthread_mutex_t *g = qp_guard(q);
	fabric_lock(g);
	for (; wr != NULL; wr = wr->next) {
		uint32_t len = wr->num_sge == 1 ? wr->sg_list->length : 0;
		int frames = frames_of(d, len), used = atomic_load(&q->sq_used), over;
		if (room-- <= 0) {
			break;
		}
		if ((state != RMV_QPS_RTS && state != RMV_QPS_ERR) || wr->num_sge < 0 || wr->num_sge > 1 ||
		    (wr->opcode != RMV_WR_SEND && (wr->opcode != RMV_WR_RDMA_WRITE || d->link == LINK_TB)) ||
		    (d->frames && frames_of(d, len) > 4095) || ((wr->send_flags & RMV_SEND_INLINE) != 0 && len > q->cap.max_inline_data)) {
			rc = EINVAL;
			break;
		}
		over = used + frames > q->sq_room;
		if ((over && !d->silent_depth) || q->sq_tail - q->sq_head == MAX_DEPTH) {
			rc = ENOMEM;
			break;
		}
		struct send_slot *s = &SQ(q)[q->sq_tail % MAX_DEPTH];
		memset(s, 0, sizeof *s);
		s->wr_id = wr->wr_id;
		s->corrupt = -1;
		s->len = len;
		s->signaled = q->sig_all || (wr->send_flags & RMV_SEND_SIGNALED) != 0;
		s->late = (uint8_t)over;
		s->write = wr->opcode == RMV_WR_RDMA_WRITE;
		s->remote = wr->remote_addr;
		s->rkey = wr->rkey;
		if (len > 0) {
			s->addr = wr->sg_list->addr;
			s->lkey = wr->sg_list->lkey;
		}
		if ((wr->send_flags & RMV_SEND_INLINE) != 0) {
			s->is_inline = 1;
			memcpy(s->inlined, (const void *)(uintptr_t)s->addr, len);
		}
		atomic_fetch_add(&fab->empty, len == 0);
		plan_send(q, s);
		atomic_fetch_add(&q->sq_used, frames);
		q->sq_tail++;
	}
	int idle = 1;
	if (q->dest >= 0 && !d->late) {
		idle = qp_pump(q);
	}
	if (d->late && q->dest >= 0) {
		qp_notify(q);
		qp_notify(&fab->qp[q->dest]);
	}
	fabric_unlock(g);
	if (!idle || state == RMV_QPS_ERR) {
		qp_notify(q);
	}
	rc = post_result(d, rc, fails, refusal);
	if (rc != 0 && bad != NULL) {
		*bad = wr;
	}
	return rc;
}

int fake_post_recv(struct rmv_qp *h, struct rmv_recv_wr *wr, struct rmv_recv_wr **bad) {
	struct qp *q = slot_of(h);
	const struct device *d = &fab->dev[q->dev];
	int state = atomic_load(&q->state), room, fails;
	int refusal = post_fault(ON_POST_RECV, q, &room, &fails), rc = 0;
	fabric_lock(&q->lock);
	for (; wr != NULL; wr = wr->next) {
		uint32_t len = wr->num_sge == 1 ? wr->sg_list->length : 0;
		int frames = frames_of(d, len), over = atomic_load(&q->rq_used) + frames > q->rq_room;
		if (room-- <= 0) {
			break;
		}
		if (state < d->recv_from || wr->num_sge < 0 || wr->num_sge > 1) {
			rc = EINVAL;
			break;
		}
		if (d->mr_first && len > 0 && fab->mr[wr->sg_list->lkey % MAX_MRS].born > q->born) {
			rc = EFAULT;
			break;
		}
		if ((over && !d->silent_depth) || q->rq_tail - q->rq_head == MAX_DEPTH) {
			rc = ENOMEM;
			break;
		}
		struct recv_slot *r = &RQ(q)[q->rq_tail % MAX_DEPTH];
		*r = (struct recv_slot){.wr_id = wr->wr_id, .len = len, .over = over};
		if (len > 0) {
			r->addr = wr->sg_list->addr;
			r->lkey = wr->sg_list->lkey;
			if (d->poison && in_region(q, r->lkey, r->addr, len)) {
				memset((void *)(uintptr_t)r->addr, 0xa5, len);
			}
		}
		atomic_fetch_add(&q->rq_used, frames);
		q->rq_tail++;
	}
	struct qp *a = qp_inbound(q);
	if (a != NULL && !d->late && !qp_pump(a)) {
		qp_notify(a);
	}
	fabric_unlock(&q->lock);
	if (state == RMV_QPS_ERR || d->late) {
		qp_notify(q);
	}
	rc = post_result(d, rc, fails, refusal);
	if (rc != 0 && bad != NULL) {
		*bad = wr;
	}
	return rc;
}
