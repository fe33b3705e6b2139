// The indexer: scores of all visible entries, and the selection of the top k.
#include "ops_index_approx.h"
#include "simd.h"

#include <math.h>

// Number of entries per item of the scoring loop.
#define ENTRIES 256
// Upper bound of the bytes of a batch's scores, unless a single token needs
// more.
#define BATCH_BYTES ((int64_t)8 << 20)
#define BATCH 64

static void transpose_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i;
		const float *q = a->q + t * a->heads * a->dim;
		for (int64_t h = 0; h < x->groups * RM_INDEX_LANES; h++) {
			int64_t g = i * x->groups + h / RM_INDEX_LANES, lane = h % RM_INDEX_LANES;
			x->w[g * RM_INDEX_LANES + lane] = h < a->heads ? a->head_weight[t * a->heads + h] * a->scale : 0;
		}
		for (int64_t g = i * x->groups, h = 0; h < a->heads; g++, h += RM_INDEX_LANES) {
			int64_t real = a->heads - h < RM_INDEX_LANES ? a->heads - h : RM_INDEX_LANES;
			for (int64_t d = 0; d < a->dim; d++) {
				float *to = x->qt + (g * a->dim + d) * RM_INDEX_LANES;
				for (int64_t lane = 0; lane < real; lane++) to[lane] = q[(h + lane) * a->dim + d];
				for (int64_t lane = real; lane < RM_INDEX_LANES; lane++) to[lane] = 0;
			}
		}
	}
}

// masked is 1 for a token that may select only entries of some of its blocks.
static int masked(const rm_index *a, int64_t t) { return a->blocks && a->mask && rm_index_blocks(a, t) > a->blocks_kept; }

// eligible is the entries of block number i of the row of blocks of token t: from *first on.
static int64_t eligible(const rm_index *a, int64_t t, int64_t i, int64_t *first) {
	int64_t block = a->blocks[t * a->blocks_kept + i];
	if (block < 0) return 0;
	*first = block * a->block_size;
	int64_t n = rm_index_visible(a, t) - *first;
	return n < a->block_size ? n : a->block_size;
}

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, (size_t)(8 * a->dim) * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		// Consecutive items are all tokens with the same entries, so that the
		// keys are read from memory only once.
		int64_t tok = i % x->count, first = i / x->count * ENTRIES;
		int64_t n = rm_index_visible(a, x->row + tok);
		if (n <= a->top_k || first >= n || masked(a, x->row + tok)) continue;
		x->k->index_scores(x->scores + tok * x->most + first, x->qt + tok * x->groups * a->dim * RM_INDEX_LANES,
		                   x->w + tok * x->groups * RM_INDEX_LANES, x->groups, a->dim, a->cache + first * a->dim,
		                   n - first < ENTRIES ? n - first : ENTRIES, tmp);
	}
}

// Blocks per item of the loop over the blocks of a masked token.
#define BLOCKS 32

// block_score_task scores the entries that masked tokens may select.
static void block_score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, (size_t)(8 * a->dim) * sizeof(float));
	int64_t parts = (a->blocks_kept + BLOCKS - 1) / BLOCKS;
	for (int64_t i = begin; i < end; i++) {
		int64_t tok = i / parts, from = i % parts * BLOCKS;
		if (!masked(a, x->row + tok)) continue;
		for (int64_t j = from; j < from + BLOCKS && j < a->blocks_kept; j++) {
			int64_t first, n = eligible(a, x->row + tok, j, &first);
			if (n <= 0) continue;
			x->k->index_scores(x->scores + tok * x->most + first, x->qt + tok * x->groups * a->dim * RM_INDEX_LANES,
			                   x->w + tok * x->groups * RM_INDEX_LANES, x->groups, a->dim, a->cache + first * a->dim, n, tmp);
		}
	}
}

// keep_blocks writes the blocks of token t, whose entries have the scores, that it keeps.
static void keep_blocks(const rm_index *a, int64_t t, const float *score, float *best) {
	int64_t n = rm_index_visible(a, t), count = rm_index_blocks(a, t);
	int32_t *out = a->blocks + t * a->blocks_kept;
	for (int64_t i = 0; count <= a->blocks_kept && i < a->blocks_kept; i++) out[i] = i < count ? (int32_t)i : -1;
	if (count <= a->blocks_kept) return;
	for (int64_t i = 0; i < count; i++) {
		const float *of = score + i * a->block_size;
		int64_t members = n - i * a->block_size < a->block_size ? n - i * a->block_size : a->block_size;
		best[i] = of[0];
		for (int64_t e = 1; e < members; e++) best[i] = of[e] > best[i] ? of[e] : best[i];
	}
	best[count - 1] = INFINITY; // the newest
	rm_select(out, best, count, a->blocks_kept);
}

static void block_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		keep_blocks(&x->a, x->row + i, x->scores + i * x->most, x->best + i * x->most_blocks);
	}
}

// select_masked selects among the entries of the blocks of token number i of the batch.
static void select_masked(const rm_indexer *x, int64_t i) {
	const rm_index *a = &x->a;
	int64_t t = x->row + i, many = 0;
	int32_t *at = x->candidates + i * x->most;
	for (int64_t j = 0; j < a->blocks_kept; j++) {
		int64_t first, n = eligible(a, t, j, &first);
		for (int64_t e = 0; e < n; e++) at[many++] = (int32_t)(first + e);
	}
	rm_select_of(a->selected + t * a->top_k, x->scores + i * x->most, at, many, a->top_k);
}

static void select_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i, n = rm_index_visible(a, t);
		if (masked(a, t)) {
			select_masked(x, i);
		} else if (n > a->top_k) {
			rm_select(a->selected + t * a->top_k, x->scores + i * x->most, n, a->top_k);
		}
	}
}

// all_task handles tokens that see no more than top_k entries: all are
// selected.
static void all_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	const rm_index *a = &x->a;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = x->row + i, n = rm_index_visible(a, t);
		int32_t *out = a->selected + t * a->top_k;
		for (int64_t e = 0; n <= a->top_k && e < a->top_k; e++) out[e] = e < n ? (int32_t)e : -1;
	}
}

// all_blocks_task handles tokens that keep all their blocks.
static void all_blocks_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rm_indexer *x = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) keep_blocks(&x->a, x->row + i, NULL, NULL);
}

// cut takes an array from a buffer. With base NULL it only adds up sizes.
static void *cut(uint8_t *base, size_t *used, int64_t count, size_t size) {
	void *at = base ? base + *used : NULL;
	*used += ((size_t)count * size + 63) / 64 * 64;
	return at;
}

// place lays out the batch's arrays in a buffer and returns its size.
static size_t place(rm_indexer *x, uint8_t *base) {
	size_t used = 0;
	int64_t lanes = x->count * x->groups * RM_INDEX_LANES, heads = rm_approx_heads(x->a.heads);
	x->qt = cut(base, &used, lanes * x->a.dim, sizeof *x->qt);
	x->w = cut(base, &used, lanes, sizeof *x->w);
	x->scores = cut(base, &used, x->count * x->most, sizeof *x->scores);
	if (x->blocks && !x->a.mask) x->best = cut(base, &used, x->count * x->most_blocks, sizeof *x->best);
	if (x->blocks && x->a.mask) x->candidates = cut(base, &used, x->count * x->most, sizeof *x->candidates);
	if (!x->approx) return used;
	x->query = cut(base, &used, x->count * heads / RM_APPROX_HEADS * rm_approx_block(x->a.dim), sizeof *x->query);
	x->weight = cut(base, &used, x->count * heads, sizeof *x->weight);
	x->candidates = cut(base, &used, x->count * x->most, sizeof *x->candidates);
	x->many = cut(base, &used, x->count, sizeof *x->many);
	x->certain = cut(base, &used, x->count, sizeof *x->certain);
	x->bound = cut(base, &used, x->count, sizeof *x->bound);
	x->norms = cut(base, &used, rm_approx_parts(x->most), sizeof *x->norms);
	return used;
}

// choose selects for the tokens of a batch that see more than top_k entries.
static int choose(rm_indexer *x) {
	uint8_t *memory = rm_pool_shared(x->pool, place(x, NULL));
	if (!memory) return RM_E_MEMORY;
	place(x, memory);
	rm_pool_for(x->pool, x->count, 1, transpose_task, x);
	if (x->approx) {
		int chosen, err = rm_index_approx(x, &chosen);
		if (err != RM_OK || chosen) return err;
	}
	if (rm_pool_reserve(x->pool, (size_t)(8 * x->a.dim) * sizeof(float)) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(x->pool, x->count * ((x->most + ENTRIES - 1) / ENTRIES), 1, score_task, x);
	if (x->blocks && x->a.mask) {
		int64_t parts = (x->a.blocks_kept + BLOCKS - 1) / BLOCKS;
		rm_pool_for(x->pool, x->count * parts, 1, block_score_task, x);
	}
	if (x->blocks && !x->a.mask) rm_pool_for(x->pool, x->count, rm_grain(x->most), block_task, x);
	rm_pool_for(x->pool, x->count, rm_grain(4 * x->most), select_task, x);
	return RM_OK;
}

int rm_op_index_top_k(rm_pool *p, rm_index a) {
	const rm_approx *approx = rm_approx_at(rm_pool_level(p), a.dim);
	rm_indexer x = {.k = rm_op_kernels_at(rm_pool_level(p)), .pool = p, .a = a};
	x.groups = (a.heads + RM_INDEX_LANES - 1) / RM_INDEX_LANES;
	int64_t bytes = (int64_t)sizeof *x.scores + (approx || a.blocks ? (int64_t)sizeof *x.candidates : 0);
	for (; x.row < a.rows; x.row += x.count) {
		// The last token of a batch sees the most entries. The batch is made
		// smaller if its scores would exceed BATCH_BYTES.
		int64_t left = a.rows - x.row;
		x.count = left < BATCH ? left : BATCH;
		int64_t fit = BATCH_BYTES / bytes / (rm_index_visible(&a, x.row + x.count - 1) + 1);
		if (fit < x.count) x.count = fit < 1 ? 1 : fit;
		x.most = rm_index_visible(&a, x.row + x.count - 1);
		x.most_blocks = rm_index_blocks(&a, x.row + x.count - 1);
		// Blocks need the exact scores of their entries.
		x.blocks = a.blocks && x.most_blocks > a.blocks_kept;
		x.approx = x.blocks ? NULL : approx;
		if (x.most > a.top_k) {
			int err = choose(&x);
			if (err != RM_OK) return err;
		}
		if (a.blocks && !a.mask && !x.blocks) rm_pool_for(p, x.count, rm_grain(a.blocks_kept), all_blocks_task, &x);
		if (rm_index_visible(&a, x.row) <= a.top_k) rm_pool_for(p, x.count, rm_grain(a.top_k), all_task, &x);
	}
	return RM_OK;
}
