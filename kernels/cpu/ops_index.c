// The indexer: scores of all visible entries, and the choice of the best.
#include "ops.h"
#include "ops_kernels.h"
#include "rm_simd.h"

#include <math.h>

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

static void score_task(void *arg, int64_t begin, int64_t end, int worker) {
	const index_args *x = arg;
	const rm_index *a = &x->a;
	float *tmp = rm_pool_scratch(x->pool, worker, (size_t)(8 * a->dim) * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		// All tokens with the same entries one after the other: the keys come
		// from memory once.
		int64_t tok = i % x->count, first = i / x->count * ENTRIES;
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

// at_of is the number of the i-th score looked at; at may be NULL for all.
static inline int64_t at_of(const int32_t *at, int64_t i) { return at ? at[i] : i; }

// kth finds the k-th largest key of n scores, digit by digit from the top: it
// counts the keys that share the digits found so far by their next digit. It
// returns the key's rank among those equal to it.
static inline int64_t kth(uint32_t *found, const float *score, const int32_t *at, int64_t n, int64_t k) {
	static const int shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
	uint32_t prefix = 0, known = 0; // digits found, and the mask of them
	int64_t wanted = k;             // rank among the keys with the prefix
	for (int round = 0; round < 3; round++) {
		uint32_t counts[2048] = {0}; // n entries have numbers of 31 bits
		uint32_t digits = (1u << bits[round]) - 1;
		for (int64_t i = 0; i < n; i++) {
			uint32_t key = sortable(score[at_of(at, i)]);
			if ((key & known) == prefix) counts[key >> shifts[round] & digits]++;
		}
		uint32_t digit = digits;
		while (counts[digit] < wanted) wanted -= counts[digit--];
		prefix |= digit << shifts[round];
		known |= digits << shifts[round];
	}
	*found = prefix;
	return wanted;
}

// choose writes the numbers of the k largest of the n scores looked at.
static inline void choose(int32_t *out, const float *score, const int32_t *at, int64_t n, int64_t k) {
	uint32_t least;
	int64_t ties = kth(&least, score, at, n, k);
	// All larger keys, and the first of those equal to it.
	for (int64_t i = 0; i < n; i++) {
		uint32_t key = sortable(score[at_of(at, i)]);
		if (key > least || (key == least && ties-- > 0)) *out++ = (int32_t)at_of(at, i);
	}
}

// Of many scores, those above a bound are picked out first, at most this many.
#define PICKED 8192
// The fewest scores for which that pays.
#define MANY 2048
// Scores of which the bound is taken: one of so many, within these limits.
#define SAMPLE_OF 128
#define LEAST_SAMPLE 512
#define MOST_SAMPLE 4096

// pick lists the numbers of all scores that are not below a bound guessed so
// that somewhat more than k are left. It returns how many; 0 if the guess was
// bad: fewer than k, or more than PICKED.
static int64_t pick(int32_t *at, const float *score, int64_t n, int64_t k) {
	int64_t m = n / SAMPLE_OF;
	m = m < LEAST_SAMPLE ? LEAST_SAMPLE : m > MOST_SAMPLE ? MOST_SAMPLE : m;
	// The rank that k has among m of n, and three deviations of it more.
	double rank = (double)k * (double)m / (double)n;
	int64_t r = (int64_t)(rank + 3 * sqrt(rank)) + 8;
	if (r >= m) return 0;
	float sample[MOST_SAMPLE];
	int64_t step = n / m;
	for (int64_t i = 0; i < m; i++) sample[i] = score[i * step];
	uint32_t key;
	kth(&key, sample, NULL, m, r);
	float bound = rm_bits_to_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
	int64_t c = 0;
	for (int64_t i = 0; i < n;) {
		int64_t end = n - i < MANY ? n : i + MANY;
		if (c + (end - i) > PICKED) return 0;
		// A NaN is kept: its key may be above all others.
		for (; i < end; i++) {
			at[c] = (int32_t)i;
			c += !(score[i] < bound);
		}
	}
	return c < k ? 0 : c;
}

void rm_select(int32_t *out, const float *score, int64_t n, int64_t k) {
	int32_t at[PICKED];
	int64_t c = n >= MANY ? pick(at, score, n, k) : 0;
	if (c > 0) {
		choose(out, score, at, c, k);
	} else {
		choose(out, score, NULL, n, k);
	}
}
