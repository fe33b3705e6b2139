// Reductions and copies of a task. Part of run.c.
#ifndef RME_COMPUTE_H
#define RME_COMPUTE_H

#include <string.h>

#include "transfer.h"

enum { INPUTS = 64 }; // most blocks of one reduction in C

// input returns block `in` of a reduction, in its slot or in memory.
static const uint8_t *input(struct rme_task *t, const struct rme_input *in, int64_t chunk, const uint8_t *src, const uint8_t *dst) {
	if (in->recv >= 0) {
		return front(t, &t->wires[t->ops[in->recv].wire]);
	}
	return source(t, &in->ref, chunk, src, dst);
}

// release counts a reduced chunk as done and frees its slots.
static int release(struct rme_task *t, struct rme_op *o) {
	o->done++;
	t->left--;
	for (int i = 0; i < o->nin; i++) {
		int32_t recv = t->inputs[o->in + i].recv;
		if (recv >= 0 && consumed(t, &t->wires[t->ops[recv].wire]) != RME_DONE) {
			return RME_BROKEN;
		}
	}
	return RME_DONE;
}

// in_c reduces a chunk if C has the kernel: 1, otherwise 0.
static int in_c(struct rme_task *t, struct rme_op *o, const uint8_t *src, uint8_t *dst) {
	if (t->how == RME_BY_GO || o->nin > INPUTS) {
		return 0;
	}
	const uint8_t *blocks[INPUTS];
	uint8_t wide[INPUTS];
	int any = o->wide;
	for (int i = 0; i < o->nin; i++) {
		const struct rme_input *in = &t->inputs[o->in + i];
		blocks[i] = input(t, in, o->done, src, dst);
		wide[i] = (uint8_t)in->wide;
		any |= in->wide;
	}
	uint8_t *out = place(t, &o->write, o->done, dst);
	int64_t n = chunk_len(o, o->done);
	int fast = !any && t->sum != NULL && t->how != RME_BFLOAT16 && o->nin >= 2 && o->nin <= 8;
	if (!fast && (t->how == RME_FLOAT32 || t->how == RME_INT32)) {
		return 0;
	}
	if (!fast) {
		rme_sum_wide(t->how, o->wide, out, n, o->nin, blocks, wide);
		return 1;
	}
	for (int i = o->nin; i < 8; i++) {
		blocks[i] = NULL;
	}
	// RM_REDUCE_F16, _I32, _F32
	int type = t->how == RME_FLOAT16 ? 1 : t->how == RME_INT32 ? 2 : 0;
	t->sum(t->level, type, out, n, o->nin, blocks[0], blocks[1], blocks[2], blocks[3], blocks[4], blocks[5],
	       blocks[6], blocks[7]);
	return 1;
}

// compute does the ready chunks of a reduction or copy. It returns how many, -1
// on failure, -2 if the caller must reduce.
static int compute(struct rme_task *t, int i, const uint8_t *src, uint8_t *dst) {
	struct rme_op *o = &t->ops[i];
	int n = 0;
	while (o->done < o->chunks && ready(t, o, o->done)) {
		if (o->kind == RME_OP_COPY) {
			uint8_t *to = place(t, &o->write, o->done, dst);
			const uint8_t *from = source(t, &o->read, o->done, src, dst);
			if (to != from) {
				memmove(to, from, (size_t)(chunk_len(o, o->done) * width(t, o->wide)));
			}
			o->done++;
			t->left--;
		} else if (in_c(t, o, src, dst)) {
			if (release(t, o) != RME_DONE) {
				return -1;
			}
		} else {
			t->need_op = i;
			t->need_chunk = o->done;
			t->need_elems = chunk_len(o, o->done);
			t->need_inputs = o->nin;
			return -2;
		}
		n++;
	}
	return n;
}

#endif
