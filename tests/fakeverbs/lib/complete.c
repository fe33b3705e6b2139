// How requests end: completions, the flush after an error.
#include "fake.h"

static void cq_notify(int slot) { atomic_store_explicit(&fab->cq[slot].attention, 1, memory_order_release); }

void qp_notify(struct qp *q) {
	cq_notify(q->scq);
	cq_notify(q->rcq);
}

void qp_fail(struct qp *q) {
	atomic_store(&q->state, RMV_QPS_ERR);
	qp_notify(q);
}

static void push(int cq, struct qp *q, uint64_t wr_id, int send, uint32_t status, uint32_t vendor, uint32_t len, int frames,
                 uint64_t ready) {
	struct cqe e = {.ready = ready, .qp = (int)(q - fab->qp), .frames = frames, .send = send};
	e.wc.wr_id = wr_id;
	e.wc.status = status;
	e.wc.vendor_err = vendor;
	e.wc.qp_num = q->qpn;
	// With an error status these fields are undefined, so they are filled with
	// misleading values; but packets of macOS 27.0 have their length.
	e.wc.opcode = status != 0 ? 0x55 : send ? RMV_WC_SEND : RMV_WC_RECV;
	e.wc.byte_len = send ? (status != 0 ? NO_LENGTH : 0) : len;
	cq_push(cq, &e);
}

// send_done completes the head of the send queue. The caller holds the guard.
void send_done(struct qp *q, uint32_t status, uint64_t ready) {
	struct send_slot *s = &SQ(q)[q->sq_head % MAX_DEPTH];
	int frames = frames_of(&fab->dev[q->dev], s->len);
	if (ready < q->last_send) {
		ready = q->last_send;
	}
	q->last_send = ready;
	q->sq_head++;
	if (status == 0 && (!s->signaled || s->swallow)) {
		q->unsignaled += frames; // their depth is freed by the next signalled one
		return;
	}
	push(q->scq, q, s->wr_id, 1, status, s->vendor, s->len, frames + q->unsignaled, ready);
	q->unsignaled = 0;
	if (s->dup) {
		push(q->scq, q, s->wr_id, 1, status, s->vendor, s->len, 0, ready);
	}
}

void flush_sends(struct qp *q) {
	while (q->sq_head != q->sq_tail) {
		send_done(q, RMV_WC_WR_FLUSH_ERR, 0);
	}
}

void recv_done(struct qp *q, uint32_t status, uint32_t vendor, uint32_t len, uint64_t ready, int times) {
	struct recv_slot *r = &RQ(q)[q->rq_head % MAX_DEPTH];
	int frames = frames_of(&fab->dev[q->dev], r->len);
	if (ready < q->last_recv) {
		ready = q->last_recv;
	}
	q->last_recv = ready;
	q->rq_head++;
	for (int i = 0; i < times; i++) {
		push(q->rcq, q, r->wr_id, 0, status, vendor, len, i == 0 ? frames : 0, ready);
	}
}

void flush_recvs(struct qp *q) {
	while (q->rq_head != q->rq_tail) {
		recv_done(q, RMV_WC_WR_FLUSH_ERR, 0, NO_LENGTH, 0, 1);
	}
}

void send_failed(struct qp *q, uint32_t status) {
	struct send_slot s = SQ(q)[q->sq_head % MAX_DEPTH];
	if (s.flush_first && q->sq_head + 1 != q->sq_tail) {
		// The requests behind it are flushed ahead of it: the cause comes last.
		q->sq_head++;
		flush_sends(q);
		SQ(q)[q->sq_tail % MAX_DEPTH] = s;
		q->sq_tail++;
	}
	send_done(q, status, 0);
	qp_fail(q);
}
