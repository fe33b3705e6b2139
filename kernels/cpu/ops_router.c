// The router: the top-k experts of each token and their weights, the mask of
// remote experts, and the slots grouped by local expert.
#include "ops.h"

#include <math.h>
#include <string.h>

typedef struct {
	rm_pool *pool;
	rm_route a;
} route_args;

static float softplus(float x) {
	if (x > 20.0f) return x;
	if (x < -20.0f) return expf(x);
	return log1pf(expf(x));
}

// choose writes the experts with the `used` largest values, descending; among
// equal values the first wins.
static void choose(int32_t *ids, const float *value, int64_t experts, int64_t used) {
	int64_t have = 0;
	for (int64_t e = 0; e < experts; e++) {
		if (have == used && !(value[e] > value[ids[used - 1]])) continue;
		int64_t at = have < used ? have++ : used - 1;
		for (; at > 0 && value[e] > value[ids[at - 1]]; at--) ids[at] = ids[at - 1];
		ids[at] = (int32_t)e;
	}
}

static float sigmoid(float x) {
	// exp of a number that is not positive does not overflow
	float e = expf(x < 0 ? x : -x);
	return (x < 0 ? e : 1.0f) / (1.0f + e);
}

// scores writes the scores of a token's logits. The sum of a softmax is taken in
// double, in the order of the experts.
static void scores(float *score, const float *logits, int64_t experts, int kind) {
	if (kind != RM_SOFTMAX) {
		for (int64_t e = 0; e < experts; e++) {
			score[e] = kind == RM_SIGMOID ? sigmoid(logits[e]) : sqrtf(softplus(logits[e]));
		}
		return;
	}
	float most = logits[0];
	for (int64_t e = 1; e < experts; e++) most = logits[e] > most ? logits[e] : most;
	double sum = 0;
	for (int64_t e = 0; e < experts; e++) sum += score[e] = expf(logits[e] - most);
	for (int64_t e = 0; e < experts; e++) score[e] = (float)(score[e] / sum);
}

// group_value is what stands for the n experts of a group.
static float group_value(const float *biased, int64_t n, int kind) {
	float best = biased[0], second = -INFINITY;
	for (int64_t e = 1; e < n; e++) {
		if (biased[e] > best) {
			second = best;
			best = biased[e];
		} else if (biased[e] > second) {
			second = biased[e];
		}
	}
	return kind == RM_GROUP_TOP_TWO && n > 1 ? best + second : best;
}

// keep_groups makes the biased scores of the experts of all but the best groups
// minus infinity. value [groups] and best [groups] are memory for it.
static void keep_groups(float *biased, const rm_route *a, float *value, int32_t *best) {
	int64_t size = a->experts / a->groups;
	for (int64_t g = 0; g < a->groups; g++) value[g] = group_value(biased + g * size, size, a->group_score);
	choose(best, value, a->groups, a->groups_used);
	for (int64_t g = 0; g < a->groups; g++) value[g] = 0;
	for (int64_t i = 0; i < a->groups_used; i++) value[best[i]] = 1;
	for (int64_t e = 0; e < a->experts; e++) {
		if (value[e / size] == 0) biased[e] = -INFINITY;
	}
}

static size_t route_bytes(const rm_route *a) {
	return (size_t)(2 * a->experts + (a->groups > 1 ? 2 * a->groups : 0)) * sizeof(float);
}

static void route_task(void *arg, int64_t begin, int64_t end, int worker) {
	const route_args *r = arg;
	const rm_route *a = &r->a;
	float *score = rm_pool_scratch(r->pool, worker, route_bytes(a));
	float *biased = score + a->experts, *group = biased + a->experts;
	for (int64_t t = begin; t < end; t++) {
		const float *logits = a->logits + t * a->experts;
		int32_t *ids = a->ids + t * a->used;
		float *weights = a->weights + t * a->used;
		if (a->table) {
			memcpy(ids, a->table + a->tokens[t] * a->used, (size_t)a->used * sizeof *ids);
			scores(score, logits, a->experts, a->score);
		} else {
			scores(score, logits, a->experts, a->score);
			for (int64_t e = 0; e < a->experts; e++) biased[e] = a->bias ? score[e] + a->bias[e] : score[e];
			if (a->groups > 1) keep_groups(biased, a, group, (int32_t *)(void *)(group + a->groups));
			choose(ids, biased, a->experts, a->used);
		}
		float sum = 0;
		for (int64_t i = 0; i < a->used; i++) sum += score[ids[i]];
		if (sum < 6.103515625e-5f) sum = 6.103515625e-5f;
		for (int64_t i = 0; i < a->used; i++) {
			float w = score[ids[i]];
			weights[i] = (a->normalise ? w / sum : w) * a->scale;
		}
	}
}

int rm_op_route(rm_pool *p, rm_route a) {
	if (rm_pool_reserve(p, route_bytes(&a)) != RM_OK) return RM_E_MEMORY;
	route_args r = {p, a};
	// a logarithm and an exponential cost as much as many products
	rm_pool_for(p, a.rows, rm_grain(16 * a.experts), route_task, &r);
	return RM_OK;
}

void rm_op_expert_mask(float *weights, const int32_t *ids, int64_t n, int64_t start, int64_t end) {
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] < start || ids[i] >= end) weights[i] = 0;
	}
}

int rm_op_expert_compact(rm_pool *p, int32_t *offsets, int32_t *slots, const int32_t *ids, int64_t n, int64_t experts,
                         int64_t start, int64_t end) {
	int32_t *next = rm_pool_scratch(p, 0, (size_t)experts * sizeof *next);
	if (!next) return RM_E_MEMORY;
	memset(next, 0, (size_t)experts * sizeof *next);
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] >= start && ids[i] < end) next[ids[i]]++;
	}
	int32_t sum = 0;
	for (int64_t e = 0; e < experts; e++) {
		offsets[e] = sum;
		sum += next[e];
		next[e] = offsets[e];
	}
	offsets[experts] = sum;
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] >= start && ids[i] < end) slots[next[ids[i]]++] = (int32_t)i;
	}
	return RM_OK;
}
