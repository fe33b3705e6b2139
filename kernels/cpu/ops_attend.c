// Attention of one token over the raw rows of its window and over compressed
// entries: scores of all of them, the exact maximum, the weighted sum.
//
// An item is one token with a group of heads. How many heads a group has
// follows from the number of tokens and threads; a head's result does not.
#include "ops.h"
#include "ops_kernels.h"
#include "rm_simd.h"

#include <math.h>

// The scores of a group of heads stay in the second-level cache.
#define SCORE_BYTES ((int64_t)1 << 20)
#define LEAST_HEADS 4

typedef struct {
	const rm_op_kernels *k;
	rm_pool *pool;
	rm_attend a;
	int64_t most;          // rows that a token sees at most
	int64_t heads, groups; // heads of a group, groups of a token
} attend_args;

// A worker's memory: addresses of the rows, a tile of them in float, scores.
static size_t attend_scratch(const attend_args *x) {
	return (size_t)x->most * sizeof(uint16_t *) +
	       (size_t)(RM_ATTEND_TILE * x->a.head_dim + x->heads * x->most) * sizeof(float);
}

// visible lists the rows that token t sees, in the order they are added.
static int64_t visible(const rm_attend *a, int64_t t, const uint16_t **rows) {
	int64_t p = a->pos + t, n = 0;
	int64_t q = p - a->window + 1;
	for (q = q < 0 ? 0 : q; q <= p; q++) rows[n++] = a->raw + q % a->ring_rows * a->head_dim;
	if (a->ratio == 0) return n;
	if (a->selected) {
		const int32_t *e = a->selected + t * a->top_k;
		for (int64_t i = 0; i < a->top_k && e[i] >= 0; i++) rows[n++] = a->compressed + e[i] * a->head_dim;
	} else {
		for (int64_t e = 0; e < (p + 1) / a->ratio; e++) rows[n++] = a->compressed + e * a->head_dim;
	}
	return n;
}

static void attend_task(void *arg, int64_t begin, int64_t end, int worker) {
	const attend_args *x = arg;
	const rm_attend *a = &x->a;
	int64_t dim = a->head_dim;
	const uint16_t **rows = rm_pool_scratch(x->pool, worker, attend_scratch(x));
	float *tile = (float *)(void *)(rows + x->most);
	float *scores = tile + RM_ATTEND_TILE * dim;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / x->groups, h = i % x->groups * x->heads;
		int64_t heads = a->heads - h < x->heads ? a->heads - h : x->heads;
		int64_t n = visible(a, t, rows);
		const float *q = a->q + (t * a->heads + h) * dim;
		float *out = a->out + (t * a->heads + h) * dim;
		for (int64_t first = 0; first < n; first += RM_ATTEND_TILE) {
			int64_t count = n - first < RM_ATTEND_TILE ? n - first : RM_ATTEND_TILE;
			for (int64_t k = 0; k < count; k++) x->k->from_half(tile + k * dim, rows[first + k], dim);
			x->k->attend_scores(scores + first, n, q, heads, tile, count, dim, a->scale);
		}
		memset(out, 0, (size_t)(heads * dim) * sizeof(float));
		float inverse[64]; // of the denominators; heads are at most that many
		for (int64_t j = 0; j < heads; j++) {
			float sink = a->sinks[h + j], max = x->k->max(scores + j * n, n);
			if (sink > max) max = sink;
			float sum = x->k->exp_sum(scores + j * n, max, n);
			inverse[j] = 1.0f / (sum + (float)exp((double)sink - (double)max));
		}
		for (int64_t first = 0; first < n; first += RM_ATTEND_TILE) {
			int64_t count = n - first < RM_ATTEND_TILE ? n - first : RM_ATTEND_TILE;
			for (int64_t k = 0; k < count; k++) x->k->from_half(tile + k * dim, rows[first + k], dim);
			x->k->attend_values(out, scores + first, n, heads, tile, count, dim);
		}
		for (int64_t j = 0; j < heads; j++) x->k->scale(out + j * dim, out + j * dim, NULL, inverse[j], dim);
	}
}

int rm_op_attend(rm_pool *p, rm_attend a) {
	if (a.rows == 0) return RM_OK;
	attend_args x = {.k = rm_op_kernels_at(rm_pool_level(p)), .pool = p, .a = a};
	x.most = a.window < a.pos + a.rows ? a.window : a.pos + a.rows;
	if (a.ratio > 0) x.most += a.selected ? a.top_k : (a.pos + a.rows) / a.ratio;
	// Two items per thread, if there are few tokens; all heads of a token
	// together, if there are many: its rows are converted once per item.
	int64_t items = 2 * (int64_t)rm_pool_size(p);
	x.heads = a.rows >= items ? a.heads : (a.heads * a.rows + items - 1) / items;
	if (rm_pool_size(p) == 1) x.heads = a.heads;
	int64_t fit = SCORE_BYTES / (int64_t)sizeof(float) / x.most;
	if (x.heads > fit) x.heads = fit;
	if (x.heads > 64) x.heads = 64;
	x.heads = x.heads < LEAST_HEADS ? LEAST_HEADS : x.heads / LEAST_HEADS * LEAST_HEADS;
	x.groups = (a.heads + x.heads - 1) / x.heads;
	if (rm_pool_reserve(p, attend_scratch(&x)) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(p, a.rows * x.groups, 1, attend_task, &x);
	return RM_OK;
}
