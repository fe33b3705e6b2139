// The indexer with approximate scores. Let T be the top_k-th largest
// approximate score and b the error bound. An entry with a score below T-2b has
// top_k entries above it and is not selected; one above T+2b has fewer than
// top_k above it and is certain to be. The entries in between are the
// candidates: they get exact scores, and the rest of the selection is made
// among them.
#include "ops_index_approx.h"
#include "simd.h"

#include <math.h>

// Candidates per item of the rescoring loop.
#define CANDIDATES 32

static int64_t query_size(const rm_indexer *x) {
	return rm_approx_heads(x->a.heads) / RM_APPROX_HEADS * rm_approx_block(x->a.dim);
}

// must_choose is 1 for a token that sees more entries than it selects.
static int must_choose(const rm_indexer *x, int64_t i) { return rm_index_visible(&x->a, x->row + i) > x->a.top_k; }

static void query_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i;
		x->bound[i] = x->approx->query(x->query + i * query_size(x), x->weight + i * rm_approx_heads(a->heads),
		                             a->q + t * a->heads * a->dim, a->head_weight + t * a->heads, a->scale, a->heads, a->dim);
	}
}

static size_t score_scratch(const rm_index *a) {
	return (size_t)(RM_APPROX_PART / RM_APPROX_ENTRIES * rm_approx_block(a->dim)) * sizeof(uint16_t);
}

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	uint16_t *keys = rm_pool_scratch(x->pool, worker, score_scratch(a));
	for (int64_t part = begin; part < end; part++) {
		int64_t first = part * RM_APPROX_PART, n = x->most - first < RM_APPROX_PART ? x->most - first : RM_APPROX_PART;
		uint32_t most = 0;
		for (int64_t e = 0; e < n; e += RM_APPROX_ENTRIES) {
			uint32_t norm = x->approx->keys(keys + e / RM_APPROX_ENTRIES * rm_approx_block(a->dim), a->cache + (first + e) * a->dim,
			                              n - e < RM_APPROX_ENTRIES ? n - e : RM_APPROX_ENTRIES, a->dim);
			most = norm > most ? norm : most;
		}
		x->norms[part] = most;
		for (int64_t i = 0; i < x->count; i++) {
			int64_t left = rm_index_visible(a, x->row + i) - first;
			if (left <= 0 || !must_choose(x, i)) continue;
			x->approx->scores(x->scores + i * x->most + first, keys, left < n ? left : n, x->query + i * query_size(x),
			                x->weight + i * rm_approx_heads(a->heads), a->heads, a->dim);
		}
	}
}

// longest is the largest norm of a key, rounded up.
static double longest(const rm_indexer *x) {
	uint32_t most = 0;
	for (int64_t p = 0; p < rm_approx_parts(x->most); p++) most = x->norms[p] > most ? x->norms[p] : most;
	return sqrt((double)rm_bits_to_float(most) * (1 + (double)x->a.dim * 0x1p-22));
}

// candidate_task writes the entries that are certain to be selected and lists
// the candidates.
static void candidate_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		x->many[i] = x->certain[i] = 0;
		if (!must_choose(x, i)) continue;
		int64_t t = x->row + i, n = rm_index_visible(a, t);
		const float *score = x->scores + i * x->most;
		int32_t *candidates = x->candidates + i * x->most, *certain = a->selected + t * a->top_k;
		double b = x->bound[i], at = (double)rm_kth_score(score, n, a->top_k);
		// The bound includes this rounding.
		float low = (float)(at - 2 * b), high = (float)(at + 2 * b);
		int64_t many = 0, all = 0;
		for (int64_t e = 0; e < n; e++) {
			candidates[many] = (int32_t)e;
			many += !(score[e] < low);
		}
		for (int64_t j = 0; j < many; j++) {
			int32_t e = candidates[j];
			if (score[e] > high) {
				*certain++ = e;
			} else {
				candidates[all++] = e;
			}
		}
		x->many[i] = all;
		x->certain[i] = many - all;
	}
}

static size_t rescore_scratch(const rm_index *a) {
	return (size_t)(8 * a->dim) * sizeof(float) + (size_t)(CANDIDATES * a->dim) * sizeof(uint16_t);
}

// rescore_task computes the exact scores of some of the candidates.
static void rescore_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, rescore_scratch(a)); // [8*dim]
	uint16_t *keys = (uint16_t *)(void *)(tmp + 8 * a->dim);       // [CANDIDATES][dim]
	for (int64_t item = begin; item < end; item++) {
		int64_t i = item % x->count, first = item / x->count * CANDIDATES, n = x->many[i] - first;
		if (n <= 0) continue;
		n = n < CANDIDATES ? n : CANDIDATES;
		const int32_t *candidates = x->candidates + i * x->most + first;
		float exact[CANDIDATES];
		for (int64_t j = 0; j < n; j++) {
			memcpy(keys + j * a->dim, a->cache + candidates[j] * a->dim, (size_t)a->dim * sizeof *keys);
		}
		x->k->index_scores(exact, x->qt + i * x->groups * a->dim * RM_INDEX_LANES, x->w + i * x->groups * RM_INDEX_LANES,
		                   x->groups, a->dim, keys, n, tmp);
		for (int64_t j = 0; j < n; j++) x->scores[i * x->most + candidates[j]] = exact[j];
	}
}

// merge_task selects the rest among the candidates and merges it with the
// certain entries, in ascending order.
static void merge_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		if (!must_choose(x, i)) continue;
		int32_t *candidates = x->candidates + i * x->most, *out = a->selected + (x->row + i) * a->top_k;
		int64_t certain = x->certain[i], left = a->top_k - certain;
		// In place: rm_select_of reads a candidate before it overwrites it.
		rm_select_of(candidates, x->scores + i * x->most, candidates, x->many[i], left);
		for (int64_t to = a->top_k; left > 0;) {
			out[--to] = certain > 0 && out[certain - 1] > candidates[left - 1] ? out[--certain] : candidates[--left];
		}
	}
}

int rm_index_approx(rm_indexer *x, int *chosen) {
	const rm_index *a = &x->a;
	*chosen = 0;
	size_t scratch = score_scratch(a) > rescore_scratch(a) ? score_scratch(a) : rescore_scratch(a);
	if (rm_pool_reserve(x->pool, scratch) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(x->pool, x->count, 1, query_task, x);
	rm_pool_for(x->pool, rm_approx_parts(x->most), 1, score_task, x);
	double norm = longest(x);
	for (int64_t i = 0; i < x->count; i++) {
		x->bound[i] = rm_approx_bound(x->bound[i], norm, a->heads, a->dim);
		if (!isfinite(x->bound[i])) return RM_OK;
	}
	rm_pool_for(x->pool, x->count, rm_grain(4 * x->most), candidate_task, x);
	int64_t most = 0;
	for (int64_t i = 0; i < x->count; i++) most = x->many[i] > most ? x->many[i] : most;
	rm_pool_for(x->pool, x->count * ((most + CANDIDATES - 1) / CANDIDATES), 1, rescore_task, x);
	rm_pool_for(x->pool, x->count, rm_grain(4 * most), merge_task, x);
	*chosen = 1;
	return RM_OK;
}
