// The indexer by near scores. With T the near score of rank top_k and b the
// bound of the error: an entry below T-2b is below top_k others, one above T+2b
// is above all but fewer than top_k. Those between are scored as ever, and what
// is left to choose is chosen among them.
#include "ops_index.h"
#include "rm_simd.h"

#include <math.h>

// Entries in doubt of one item.
#define DOUBTS 32

static int64_t query_size(const rm_indexer *x) {
	return rm_near_heads(x->a.heads) / RM_NEAR_HEADS * rm_near_block(x->a.dim);
}

// crowded says that a token must choose.
static int crowded(const rm_indexer *x, int64_t i) { return rm_index_seen(&x->a, x->row + i) > x->a.top_k; }

static void query_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i;
		x->bound[i] = x->near->query(x->query + i * query_size(x), x->weight + i * rm_near_heads(a->heads),
		                             a->q + t * a->heads * a->dim, a->head_weight + t * a->heads, a->scale, a->heads, a->dim);
	}
}

static size_t score_scratch(const rm_index *a) {
	return (size_t)(RM_NEAR_PART / RM_NEAR_ENTRIES * rm_near_block(a->dim)) * sizeof(uint16_t);
}

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	uint16_t *keys = rm_pool_scratch(x->pool, worker, score_scratch(a));
	for (int64_t part = begin; part < end; part++) {
		int64_t first = part * RM_NEAR_PART, n = x->most - first < RM_NEAR_PART ? x->most - first : RM_NEAR_PART;
		uint32_t most = 0;
		for (int64_t e = 0; e < n; e += RM_NEAR_ENTRIES) {
			uint32_t norm = x->near->keys(keys + e / RM_NEAR_ENTRIES * rm_near_block(a->dim), a->cache + (first + e) * a->dim,
			                              n - e < RM_NEAR_ENTRIES ? n - e : RM_NEAR_ENTRIES, a->dim);
			most = norm > most ? norm : most;
		}
		x->norms[part] = most;
		for (int64_t i = 0; i < x->count; i++) {
			int64_t left = rm_index_seen(a, x->row + i) - first;
			if (left <= 0 || !crowded(x, i)) continue;
			x->near->scores(x->scores + i * x->most + first, keys, left < n ? left : n, x->query + i * query_size(x),
			                x->weight + i * rm_near_heads(a->heads), a->heads, a->dim);
		}
	}
}

// longest is the largest norm of a key, rounded up.
static double longest(const rm_indexer *x) {
	uint32_t most = 0;
	for (int64_t p = 0; p < rm_near_parts(x->most); p++) most = x->norms[p] > most ? x->norms[p] : most;
	return sqrt((double)rm_bits_to_float(most) * (1 + (double)x->a.dim * 0x1p-22));
}

// doubt_task writes the entries that are sure to be chosen, and lists those in
// doubt.
static void doubt_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		x->many[i] = x->sure[i] = 0;
		if (!crowded(x, i)) continue;
		int64_t t = x->row + i, n = rm_index_seen(a, t);
		const float *score = x->scores + i * x->most;
		int32_t *doubts = x->doubts + i * x->most, *sure = a->selected + t * a->top_k;
		double b = x->bound[i], at = (double)rm_kth_score(score, n, a->top_k);
		// The bound has room for the rounding.
		float low = (float)(at - 2 * b), high = (float)(at + 2 * b);
		int64_t many = 0, all = 0;
		for (int64_t e = 0; e < n; e++) {
			doubts[many] = (int32_t)e;
			many += !(score[e] < low);
		}
		for (int64_t j = 0; j < many; j++) {
			int32_t e = doubts[j];
			if (score[e] > high) {
				*sure++ = e;
			} else {
				doubts[all++] = e;
			}
		}
		x->many[i] = all;
		x->sure[i] = many - all;
	}
}

static size_t doubt_bytes(const rm_index *a) {
	return (size_t)(8 * a->dim) * sizeof(float) + (size_t)(DOUBTS * a->dim) * sizeof(uint16_t);
}

// settle_task scores some of the entries in doubt as index_scores does.
static void settle_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, doubt_bytes(a)); // [8*dim]
	uint16_t *keys = (uint16_t *)(void *)(tmp + 8 * a->dim);       // [DOUBTS][dim]
	for (int64_t item = begin; item < end; item++) {
		int64_t i = item % x->count, first = item / x->count * DOUBTS, n = x->many[i] - first;
		if (n <= 0) continue;
		n = n < DOUBTS ? n : DOUBTS;
		const int32_t *doubts = x->doubts + i * x->most + first;
		float exact[DOUBTS];
		for (int64_t j = 0; j < n; j++) {
			memcpy(keys + j * a->dim, a->cache + doubts[j] * a->dim, (size_t)a->dim * sizeof *keys);
		}
		x->k->index_scores(exact, x->qt + i * x->groups * a->dim * RM_INDEX_LANES, x->w + i * x->groups * RM_INDEX_LANES,
		                   x->groups, a->dim, keys, n, tmp);
		for (int64_t j = 0; j < n; j++) x->scores[i * x->most + doubts[j]] = exact[j];
	}
}

// merge_task chooses what is left among the entries in doubt, and sorts them in
// between the others.
static void merge_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		if (!crowded(x, i)) continue;
		int32_t *doubts = x->doubts + i * x->most, *out = a->selected + (x->row + i) * a->top_k;
		int64_t sure = x->sure[i], left = a->top_k - sure;
		// They are read before their place is written.
		rm_select_of(doubts, x->scores + i * x->most, doubts, x->many[i], left);
		for (int64_t to = a->top_k; left > 0;) {
			out[--to] = sure > 0 && out[sure - 1] > doubts[left - 1] ? out[--sure] : doubts[--left];
		}
	}
}

int rm_index_near(rm_indexer *x, int *chosen) {
	const rm_index *a = &x->a;
	*chosen = 0;
	size_t scratch = score_scratch(a) > doubt_bytes(a) ? score_scratch(a) : doubt_bytes(a);
	if (rm_pool_reserve(x->pool, scratch) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(x->pool, x->count, 1, query_task, x);
	rm_pool_for(x->pool, rm_near_parts(x->most), 1, score_task, x);
	double norm = longest(x);
	for (int64_t i = 0; i < x->count; i++) {
		x->bound[i] = rm_near_bound(x->bound[i], norm, a->heads, a->dim);
		if (!isfinite(x->bound[i])) return RM_OK;
	}
	rm_pool_for(x->pool, x->count, rm_grain(4 * x->most), doubt_task, x);
	int64_t most = 0;
	for (int64_t i = 0; i < x->count; i++) most = x->many[i] > most ? x->many[i] : most;
	rm_pool_for(x->pool, x->count * ((most + DOUBTS - 1) / DOUBTS), 1, settle_task, x);
	rm_pool_for(x->pool, x->count, rm_grain(4 * most), merge_task, x);
	*chosen = 1;
	return RM_OK;
}
