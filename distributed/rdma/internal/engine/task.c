// The memory of tasks.
#include <stdlib.h>
#include <string.h>

#include "rm_engine.h"

struct rme_task *rme_task_new(const struct rme_task *shape, const struct rme_op *ops, const struct rme_dep *deps, int ndeps,
                          const struct rme_input *inputs, int ninputs, const struct rme_wire *wires,
                          const int32_t *wire_ops, int nwire_ops, struct rme_conn *const *conns) {
	struct rme_task *t = calloc(1, sizeof *t);
	if (t == NULL) {
		return NULL;
	}
	*t = *shape;
	t->ops = calloc((size_t)t->nops + 1, sizeof *ops);
	t->deps = calloc((size_t)ndeps + 1, sizeof *deps);
	t->inputs = calloc((size_t)ninputs + 1, sizeof *inputs);
	t->wires = calloc((size_t)t->nwires + 1, sizeof *wires);
	t->wire_ops = calloc((size_t)nwire_ops + 1, sizeof *wire_ops);
	t->conns = calloc((size_t)t->nconns + 1, sizeof *conns);
	if (!t->ops || !t->deps || !t->inputs || !t->wires || !t->wire_ops || !t->conns) {
		rme_task_free(t);
		return NULL;
	}
	if (t->nops > 0) {
		memcpy(t->ops, ops, (size_t)t->nops * sizeof *ops);
	}
	if (ndeps > 0) {
		memcpy(t->deps, deps, (size_t)ndeps * sizeof *deps);
	}
	if (ninputs > 0) {
		memcpy(t->inputs, inputs, (size_t)ninputs * sizeof *inputs);
	}
	if (t->nwires > 0) {
		memcpy(t->wires, wires, (size_t)t->nwires * sizeof *wires);
		memcpy(t->wire_ops, wire_ops, (size_t)nwire_ops * sizeof *wire_ops);
		memcpy(t->conns, conns, (size_t)t->nconns * sizeof(struct rme_conn *));
	}
	return t;
}

void rme_task_free(struct rme_task *t) {
	if (t == NULL) {
		return;
	}
	free(t->ops);
	free(t->deps);
	free(t->inputs);
	free(t->wires);
	free(t->wire_ops);
	free(t->conns);
	free(t);
}
