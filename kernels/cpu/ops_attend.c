// Attention of one token over the raw rows of its window, or all, and over
// compressed entries: scores of all of them, the exact maximum, the weighted sum.
//
// Many tokens that see few rows: an item is one token with all its heads. Few
// tokens, or so many rows that the scores of all heads do not fit a cache: the
// threads share each of three steps, the scores by rows, the weights by heads, the
// sums by channels; so a row is read and converted once per step, however many
// heads and threads there are. A head's result is the same either way.
#include "ops.h"
#include "ops_kernels.h"
#include "simd.h"

#include <math.h>

// Number of rows that are scored at a time, so that as floats they stay in the
// first-level cache together with the queries of four heads (of 576 elements each).
#define TILE 8
// So does a block of values that is added for all heads in turn.
#define VALUE_ROWS 64
#define VALUE_COLS 64
// The scores that a thread computes by itself stay in the second-level cache;
// those of a batch of tokens that the threads share take at most this many bytes,
// unless a single token needs more.
#define SCORE_BYTES ((int64_t)1 << 20)
#define BATCH_BYTES ((int64_t)8 << 20)
#define LEAST_HEADS 4

// work is the state of a token.
typedef struct {
	int64_t t, n;          // the token, and the rows it sees
	const uint16_t **rows; // [n]
	float *scores;         // [heads][stride], n of them used, then weights
	float *inverse;        // [heads] of the sums of the weights
} work;

typedef struct {
	const rm_op_kernels *k;
	rm_pool *pool;
	rm_attend a;
	int64_t most;          // rows that a token sees at most
	int64_t stride;        // floats from the scores of a head to those of the next
	// shared by the threads
	work *work; // [tokens]
	int64_t parts, part;   // parts of a token's rows, rows of a part
	int64_t cols;          // blocks of a token's channels
	int64_t heads, groups; // heads of an item, items of a block
} attend_args;

// visible lists the rows that token t sees, in the order in which they are
// summed.
static int64_t visible(const rm_attend *a, int64_t t, const uint16_t **rows) {
	int64_t p = a->pos + t, n = 0;
	int64_t q = a->window == 0 ? 0 : p - a->window + 1;
	for (q = q < 0 ? 0 : q; q <= p && a->ring_rows > 0; q++) rows[n++] = a->raw + q % a->ring_rows * a->head_dim;
	if (a->ratio == 0) return n;
	if (a->selected) {
		const int32_t *e = a->selected + t * a->top_k;
		for (int64_t i = 0; i < a->top_k && e[i] >= 0; i++) rows[n++] = a->compressed + e[i] * a->head_dim;
	} else {
		for (int64_t e = 0; e < (p + 1) / a->ratio; e++) rows[n++] = a->compressed + e * a->head_dim;
	}
	return n;
}

// score computes the scores of the rows from begin to end. tile has room for
// TILE rows.
static void score(const attend_args *x, const work *w, int64_t begin, int64_t end, float *tile) {
	const rm_attend *a = &x->a;
	int64_t dim = a->head_dim;
	const float *q = a->q + w->t * a->heads * dim;
	for (int64_t first = begin; first < end; first += TILE) {
		int64_t count = end - first < TILE ? end - first : TILE, next = first + count;
		int64_t coming = end - next < TILE ? end - next : TILE;
		x->k->from_float16_rows(tile, w->rows + first, 0, count, dim);
		x->k->attend_scores(w->scores + first, x->stride, q, a->heads, tile, count, dim, a->scale, w->rows + next, coming);
	}
}

// weigh turns the scores of the heads from begin to end into weights.
static void weigh(const attend_args *x, const work *w, int64_t begin, int64_t end) {
	for (int64_t j = begin; j < end; j++) {
		float *scores = w->scores + j * x->stride;
		float sink = x->a.sinks ? x->a.sinks[j] : -INFINITY, max = x->k->max(scores, w->n);
		if (sink > max) max = sink;
		float sum = x->k->exp_sum(scores, max, w->n);
		w->inverse[j] = 1.0f / (x->a.sinks ? sum + (float)exp((double)sink - (double)max) : sum);
	}
}

// sum adds up the channels c of the rows, n of them, for the heads from begin
// to end. tile has room for VALUE_ROWS x VALUE_COLS.
static void sum(const attend_args *x, const work *w, int64_t c, int64_t n, int64_t begin, int64_t end, float *tile) {
	int64_t dim = x->a.value_dim;
	float *out = x->a.out + w->t * x->a.heads * dim + c;
	for (int64_t j = begin; j < end; j++) memset(out + j * dim, 0, (size_t)n * sizeof(float));
	for (int64_t first = 0; first < w->n; first += VALUE_ROWS) {
		int64_t count = w->n - first < VALUE_ROWS ? w->n - first : VALUE_ROWS;
		x->k->from_float16_rows(tile, w->rows + first, c, count, n);
		x->k->attend_values(out + begin * dim, dim, w->scores + begin * x->stride + first, x->stride, end - begin, tile, n, count, n);
	}
	for (int64_t j = begin; j < end; j++) x->k->scale(out + j * dim, out + j * dim, NULL, w->inverse[j], n);
}

// cols is the number of channels of a block that starts at channel c.
static int64_t cols(const rm_attend *a, int64_t c) { return a->value_dim - c < VALUE_COLS ? a->value_dim - c : VALUE_COLS; }

static int64_t tile_floats(const rm_attend *a) {
	int64_t keys = TILE * a->head_dim;
	return keys > VALUE_ROWS * VALUE_COLS ? keys : VALUE_ROWS * VALUE_COLS;
}

// A worker's memory: a tile, addresses of the rows, scores, inverses.
static size_t item_bytes(const attend_args *x) {
	return (size_t)(tile_floats(&x->a) + x->a.heads * (x->stride + 1)) * sizeof(float) + (size_t)x->most * sizeof(uint16_t *);
}

static void token_task(void *arg, int64_t begin, int64_t end, int worker) {
	const attend_args *x = arg;
	const rm_attend *a = &x->a;
	float *tile = rm_pool_scratch(x->pool, worker, item_bytes(x));
	work w = {.rows = (const uint16_t **)(void *)(tile + tile_floats(a))};
	w.scores = (float *)(void *)(w.rows + x->most);
	w.inverse = w.scores + a->heads * x->stride;
	for (w.t = begin; w.t < end; w.t++) {
		w.n = visible(a, w.t, w.rows);
		score(x, &w, 0, w.n, tile);
		weigh(x, &w, 0, a->heads);
		for (int64_t c = 0; c < a->value_dim; c += VALUE_COLS) sum(x, &w, c, cols(a, c), 0, a->heads, tile);
	}
}

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const attend_args *x = arg;
	float *tile = rm_pool_scratch(x->pool, worker, (size_t)tile_floats(&x->a) * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		const work *w = &x->work[i / x->parts];
		int64_t first = i % x->parts * x->part;
		score(x, w, first, w->n - first < x->part ? w->n : first + x->part, tile);
	}
}

static void weigh_task(void *arg, int64_t begin, int64_t end, int worker) {
	const attend_args *x = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) weigh(x, &x->work[i / x->a.heads], i % x->a.heads, i % x->a.heads + 1);
}

static void sum_task(void *arg, int64_t begin, int64_t end, int worker) {
	const attend_args *x = arg;
	const rm_attend *a = &x->a;
	float *tile = rm_pool_scratch(x->pool, worker, (size_t)tile_floats(a) * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		int64_t c = i / x->groups % x->cols * VALUE_COLS, h = i % x->groups * x->heads;
		sum(x, &x->work[i / x->groups / x->cols], c, cols(a, c), h, a->heads - h < x->heads ? a->heads : h + x->heads, tile);
	}
}

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// shared: the threads share each step for all tokens of a batch.
static int shared(attend_args *x) {
	const rm_attend *a = &x->a;
	int64_t threads = rm_pool_size(x->pool);
	int64_t floats = a->heads * (x->stride + 1);
	int64_t batch = BATCH_BYTES / (int64_t)sizeof(float) / floats;
	batch = batch < 1 ? 1 : batch > a->rows ? a->rows : batch;
	if (rm_pool_reserve(x->pool, (size_t)tile_floats(a) * sizeof(float)) != RM_OK) return RM_E_MEMORY;
	size_t each = sizeof(work) + (size_t)x->most * sizeof(uint16_t *) + (size_t)floats * sizeof(float);
	x->work = rm_pool_shared(x->pool, (size_t)batch * each);
	if (!x->work) return RM_E_MEMORY;
	const uint16_t **rows = (const uint16_t **)(void *)(x->work + batch);
	float *memory = (float *)(void *)(rows + batch * x->most);
	x->cols = up(a->value_dim, VALUE_COLS);
	for (int64_t row = 0; row < a->rows; row += batch) {
		int64_t count = a->rows - row < batch ? a->rows - row : batch;
		for (int64_t i = 0; i < count; i++) {
			work *w = &x->work[i];
			*w = (work){.t = row + i, .rows = rows + i * x->most, .scores = memory + i * floats};
			w->inverse = w->scores + a->heads * x->stride;
			w->n = visible(a, w->t, w->rows);
		}
		// Several items per thread: fewer rows each if there are few tokens,
		// fewer heads if there are too few channels.
		x->part = up(up(x->most * count, 4 * threads), TILE) * TILE;
		x->parts = up(x->most, x->part);
		x->groups = up(2 * threads, x->cols * count);
		x->heads = up(up(a->heads, x->groups), LEAST_HEADS) * LEAST_HEADS;
		x->groups = up(a->heads, x->heads);
		rm_pool_for(x->pool, count * x->parts, 1, score_task, x);
		rm_pool_for(x->pool, count * a->heads, rm_grain(8 * x->most), weigh_task, x);
		rm_pool_for(x->pool, count * x->cols * x->groups, 1, sum_task, x);
	}
	return RM_OK;
}

int rm_op_attend(rm_pool *p, rm_attend a) {
	if (a.rows == 0) return RM_OK;
	attend_args x = {.k = rm_op_kernels_at(rm_pool_level(p)), .pool = p, .a = a};
	x.most = a.window > 0 && a.window < a.pos + a.rows ? a.window : a.pos + a.rows;
	if (a.ring_rows == 0) x.most = 0;
	if (a.ratio > 0) x.most += a.selected ? a.top_k : (a.pos + a.rows) / a.ratio;
	// Scores of a row of all heads must not share the sets of a cache: an odd number of lines apart.
	x.stride = up(x.most, 16) * 16;
	x.stride += x.stride / 16 % 2 == 0 ? 16 : 0;
	int few = rm_pool_size(p) > 1 && a.rows < 4 * (int64_t)rm_pool_size(p);
	if (few || a.heads * x.stride * (int64_t)sizeof(float) > SCORE_BYTES) return shared(&x);
	if (rm_pool_reserve(p, item_bytes(&x)) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(p, a.rows, 1, token_task, &x);
	return RM_OK;
}
