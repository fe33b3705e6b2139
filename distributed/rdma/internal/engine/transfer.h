// Moving chunks between memory and the slots of a connection: received messages
// are copied to their place, and messages with ready chunks are sent. Part of
// run.c.
#ifndef RME_TRANSFER_H
#define RME_TRANSFER_H

#include <string.h>

#include "completions.h"

// ready reports whether all dependences of a chunk are met.
static inline int ready(const struct rme_task *t, const struct rme_op *o, int64_t chunk) {
	for (int i = 0; i < o->nafter; i++) {
		const struct rme_dep *d = &t->deps[o->after + i];
		const struct rme_op *p = &t->ops[d->op];
		if ((p->held ? p->arrived : p->done) < least(chunk - d->back + 1, p->chunks)) {
			return 0;
		}
	}
	return 1;
}

// front returns the chunk of the message in front, NULL if it was not received
// yet.
static inline uint8_t *front(struct rme_task *t, struct rme_wire *w) {
	struct rme_conn *c = t->conns[w->conn];
	if (w->embedded && w->number == 0) {
		return c->header_recv + sizeof(struct rme_header);
	}
	uint64_t k = w->base + (uint64_t)(w->number - w->embedded);
	return c->recvs_done > k ? c->recv + (size_t)(k % (uint64_t)c->slots) * c->slot_bytes : NULL;
}

// wrong checks that the message in front has the expected length and sequence
// tag: RME_DONE or RME_BROKEN. The tag is at the end of the message, so a
// message that has it is complete, whatever length its completion states.
static inline int wrong(struct rme_task *t, struct rme_wire *w, const uint8_t *from) {
	struct rme_conn *c = t->conns[w->conn];
	if (w->embedded && w->number == 0) {
		return RME_DONE;
	}
	uint32_t len = c->recv_len[(w->base + (uint64_t)(w->number - w->embedded)) % (uint64_t)c->slots];
	uint32_t want = message_bytes(t, &t->ops[w->op], w->chunk);
	uint64_t tag = 0;
	if (t->tag != 0) {
		memcpy(&tag, from + want - sizeof tag, sizeof tag);
	}
	int proved = t->tag != 0 && tag == tag_of(t, w);
	if (__builtin_expect(len != want, 0)) {
		if (!proved) {
			return wrong_length(t, w->conn, len, want);
		}
		odd_length(t, w->conn, len, want);
	} else if (__builtin_expect(t->tag != 0 && !proved, 0)) {
		t->fail.got = (int32_t)((tag ^ tag_of(t, w) ^ (uint64_t)w->number) & 0xffffff);
		t->fail.want = (uint32_t)w->number;
		return fail(t, RME_FAIL_LOST, w->conn, 0);
	}
	return RME_DONE;
}

// consumed frees the slot of the message in front and posts the next receive.
static int consumed(struct rme_task *t, struct rme_wire *w) {
	struct rme_conn *c = t->conns[w->conn];
	struct rme_op *o = &t->ops[w->op];
	if (!(w->embedded && w->number == 0)) {
		int64_t i = w->number - w->embedded;
		t->received += message_bytes(t, o, w->chunk);
		// Never more receives than messages, because one too many would take a
		// message of the next operation.
		if (i + c->slots < w->data) {
			if (post_next(t, w) != RME_DONE) {
				return RME_BROKEN;
			}
		}
	}
	o->done++;
	t->left--;
	w->number++;
	w->announced = 0;
	advance(t, w);
	if (w->op >= 0) {
		return RME_DONE;
	}
	// The next header's receive follows the last receive of this operation.
	int err = rme_post_header(c, t->seq);
	return err == 0 ? send_credit(t, w->conn) : fail(t, RME_FAIL_POST_RECV, w->conn, err);
}

// place returns where a chunk is written, NULL if it stays in its slot or has no
// content.
static uint8_t *place(struct rme_task *t, const struct rme_ref *r, int64_t chunk, uint8_t *dst) {
	switch (r->space) {
	case RME_DST:
		return dst + at(r, chunk);
	case RME_SCRATCH:
		return t->scratch + at(r, chunk);
	}
	return NULL;
}

// source returns where a chunk is read, NULL if it is in a slot or has no
// content.
static const uint8_t *source(struct rme_task *t, const struct rme_ref *r, int64_t chunk, const uint8_t *src, const uint8_t *dst) {
	switch (r->space) {
	case RME_SRC:
		return src + at(r, chunk);
	case RME_DST:
		return dst + at(r, chunk);
	case RME_SCRATCH:
		return t->scratch + at(r, chunk);
	}
	return NULL;
}

// wrong_header_length checks the length of a right header's message: RME_DONE or
// RME_BROKEN. One frame arrives completely or not at all.
static inline int wrong_header_length(struct rme_task *t, struct rme_wire *w) {
	struct rme_conn *c = t->conns[w->conn];
	const struct rme_op *o = &t->ops[w->op];
	uint32_t want = header_message(w->embedded ? chunk_len(o, w->chunk) * width(t, o->wide) : 0);
	if (__builtin_expect(c->header_len == want, 1)) {
		return RME_DONE;
	}
	if (want > 4096) {
		return wrong_length(t, w->conn, c->header_len, want);
	}
	odd_length(t, w->conn, c->header_len, want);
	return RME_DONE;
}

// receive consumes the messages received on a wire. It returns how many, or -1.
static int receive(struct rme_task *t, struct rme_wire *w, uint8_t *dst) {
	struct rme_conn *c = t->conns[w->conn];
	int n = 0;
	while (w->op >= 0) {
		if (!w->begun) {
			if (!c->header_in) {
				return n;
			}
			if (__builtin_expect(memcmp(c->header_recv, &w->header, sizeof w->header) != 0, 0)) {
				wrong_header(t, w);
				return -1;
			}
			if (wrong_header_length(t, w) != RME_DONE) {
				return -1;
			}
			c->header_in = 0;
			w->begun = 1;
			t->received += c->header_len;
			t->header_at = rme_now();
			n++;
		}
		const uint8_t *from = front(t, w);
		if (from == NULL) {
			return n;
		}
		struct rme_op *o = &t->ops[w->op];
		if (!w->announced && wrong(t, w, from) != RME_DONE) {
			return -1;
		}
		if (o->held) {
			if (!w->announced) {
				w->announced = 1;
				o->arrived++;
				n++;
			}
			return n;
		}
		if (!ready(t, o, w->chunk)) {
			return n;
		}
		uint8_t *to = place(t, &o->write, w->chunk, dst);
		if (to != NULL) {
			memcpy(to, from, (size_t)(chunk_len(o, w->chunk) * width(t, o->wide)));
		}
		if (consumed(t, w) != RME_DONE) {
			return -1;
		}
		n++;
	}
	return n;
}

// send_ready posts the messages of a wire that have ready chunks. It returns how
// many, or -1.
static int send_ready(struct rme_task *t, struct rme_wire *w, const uint8_t *src, const uint8_t *dst) {
	struct rme_conn *c = t->conns[w->conn];
	int n = 0;
	while (w->op >= 0) {
		struct rme_op *o = &t->ops[w->op];
		int header = !w->begun;
		int chunk = !header || w->embedded;
		int slot = (int)(header ? c->headers % RME_HEADERS : c->sends % (uint64_t)c->slots);
		uint64_t *busy = header ? &c->header_id[slot] : &c->send_id[slot];
		if (*busy != 0 || (chunk && !ready(t, o, w->chunk)) || (c->credits != NULL && c->headers + c->sends >= credits(c))) {
			return n;
		}
		uint8_t *to = header ? c->header_send + (size_t)slot * c->header_bytes : c->send + (size_t)slot * c->slot_bytes;
		uint8_t *start = to;
		uint32_t len = header ? 0 : message_bytes(t, o, w->chunk);
		if (header) {
			memcpy(to, &w->header, sizeof w->header);
			to += sizeof w->header;
		}
		if (chunk) {
			const uint8_t *from = source(t, &o->read, w->chunk, src, dst);
			size_t bytes = from == NULL ? 0 : (size_t)(chunk_len(o, w->chunk) * width(t, o->wide));
			if (from != NULL) {
				memcpy(to, from, bytes);
			}
			if (header) {
				len = header_message((int64_t)bytes);
			} else if (t->tag != 0) {
				uint64_t tag = tag_of(t, w);
				memcpy(start + len - sizeof tag, &tag, sizeof tag);
			}
		} else {
			len = 4096;
		}
		uint64_t id = id_of(c, t->seq, header ? RME_KIND_HEADER_SEND : RME_KIND_SEND, slot);
		*busy = id;
		int err = post_send(c, start, len, id);
		if (__builtin_expect(err != 0, 0)) {
			*busy = 0;
			fail(t, RME_FAIL_POST_SEND, w->conn, err);
			return -1;
		}
		t->sent += len;
		n++;
		if (header) {
			c->headers++;
			w->begun = 1;
		} else {
			c->sends++;
		}
		if (chunk) {
			o->done++;
			t->left--;
			w->number++;
			advance(t, w);
		}
	}
	return n;
}

#endif
