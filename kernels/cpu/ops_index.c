// The indexer: scores of all visible entries, and the choice of the best.
#include "ops.h"
#include "ops_kernels.h"
#include "rm_simd.h"

// Entries of one item of the scoring loop.
#define ENTRIES 256
// The scores of a batch of tokens take at most this many bytes, if one token
// does not need more.
#define SCORE_BYTES ((int64_t)8 << 20)
#define BATCH 64

typedef struct {
	const rm_op_kernels *k;
	rm_pool *pool;
	rm_index a;
	int64_t row, count;  // the tokens of the batch
	int64_t most, parts; // entries of the last token, items per token
	int64_t groups;      // heads in groups of RM_INDEX_LANES
	float *qt;           // [count][groups][dim][RM_INDEX_LANES]
	float *w;            // [count][groups][RM_INDEX_LANES]
	float *scores;       // [count][most]
} index_args;

// seen is how many entries token t sees.
static int64_t seen(const rm_index *a, int64_t t) {
	int64_t n = (a->pos + t + 1) / a->ratio;
	return n < a->entries ? n : a->entries;
}

static void transpose_task(void *arg, int64_t begin, int64_t end, int worker) {
	const index_args *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i;
		const float *q = a->q + t * a->heads * a->dim;
		for (int64_t h = 0; h < x->groups * RM_INDEX_LANES; h++) {
			int64_t g = i * x->groups + h / RM_INDEX_LANES, lane = h % RM_INDEX_LANES;
			int real = h < a->heads;
			x->w[g * RM_INDEX_LANES + lane] = real ? a->head_weight[t * a->heads + h] * a->scale : 0;
			float *to = x->qt + g * a->dim * RM_INDEX_LANES + lane;
			for (int64_t d = 0; d < a->dim; d++) to[d * RM_INDEX_LANES] = real ? q[h * a->dim + d] : 0;
		}
	}
}

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const index_args *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, (size_t)(8 * a->dim) * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		int64_t tok = i / x->parts, first = i % x->parts * ENTRIES;
		int64_t n = seen(a, x->row + tok);
		if (n <= a->top_k || first >= n) continue;
		x->k->index_scores(x->scores + tok * x->most + first, x->qt + tok * x->groups * a->dim * RM_INDEX_LANES,
		                   x->w + tok * x->groups * RM_INDEX_LANES, x->groups, a->dim, a->cache + first * a->dim,
		                   n - first < ENTRIES ? n - first : ENTRIES, tmp);
	}
}

static void choose_task(void *arg, int64_t begin, int64_t end, int worker) {
	const index_args *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i, n = seen(a, t);
		int32_t *out = a->selected + t * a->top_k;
		if (n > a->top_k) {
			rm_select(out, x->scores + i * x->most, n, a->top_k);
			continue;
		}
		for (int64_t e = 0; e < a->top_k; e++) out[e] = e < n ? (int32_t)e : -1;
	}
}

int rm_op_index_top_k(rm_pool *p, rm_index a) {
	index_args x = {.k = rm_op_kernels_at(rm_pool_level(p)), .pool = p, .a = a};
	x.groups = (a.heads + RM_INDEX_LANES - 1) / RM_INDEX_LANES;
	if (rm_pool_reserve(p, (size_t)(8 * a.dim) * sizeof(float)) != RM_OK) return RM_E_MEMORY;
	for (; x.row < a.rows; x.row += x.count) {
		// The last token of a full batch sees most; a batch is made smaller
		// when many entries are seen.
		int64_t left = a.rows - x.row;
		x.count = left < BATCH ? left : BATCH;
		int64_t fit = SCORE_BYTES / (int64_t)sizeof(float) / (seen(&a, x.row + x.count - 1) + 1);
		if (fit < x.count) x.count = fit < 1 ? 1 : fit;
		x.most = seen(&a, x.row + x.count - 1);
		if (x.most > a.top_k) {
			x.parts = (x.most + ENTRIES - 1) / ENTRIES;
			int64_t lanes = x.count * x.groups * RM_INDEX_LANES;
			x.qt = rm_pool_shared(p, (size_t)(lanes * (a.dim + 1) + x.count * x.most) * sizeof(float));
			if (!x.qt) return RM_E_MEMORY;
			x.w = x.qt + lanes * a.dim;
			x.scores = x.w + lanes;
			rm_pool_for(p, x.count, 1, transpose_task, &x);
			rm_pool_for(p, x.count * x.parts, 1, score_task, &x);
		}
		rm_pool_for(p, x.count, rm_grain(4 * x.most), choose_task, &x);
	}
	return RM_OK;
}

// sortable maps a float to a number with the same order. Both zeros are equal.
static inline uint32_t sortable(float f) {
	uint32_t u = rm_float_to_bits(f + 0.0f);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

void rm_select(int32_t *out, const float *score, int64_t n, int64_t k) {
	// The k-th largest key, digit by digit from the top: count the keys
	// that share the digits found so far by their next digit.
	static const int shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
	uint32_t prefix = 0, known = 0; // digits found, and the mask of them
	int64_t wanted = k;             // rank among the keys with the prefix
	for (int round = 0; round < 3; round++) {
		int64_t counts[2048] = {0};
		uint32_t digits = (1u << bits[round]) - 1;
		for (int64_t i = 0; i < n; i++) {
			uint32_t key = sortable(score[i]);
			if ((key & known) == prefix) counts[key >> shifts[round] & digits]++;
		}
		uint32_t digit = digits;
		while (counts[digit] < wanted) wanted -= counts[digit--];
		prefix |= digit << shifts[round];
		known |= digits << shifts[round];
	}
	// All larger keys, and the first `wanted` of those equal to it.
	for (int64_t i = 0; i < n; i++) {
		uint32_t key = sortable(score[i]);
		if (key > prefix || (key == prefix && wanted-- > 0)) *out++ = (int32_t)i;
	}
}
