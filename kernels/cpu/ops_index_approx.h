// The indexer with approximate scores, and the batch of tokens it works on.
#ifndef RM_OPS_INDEX_APPROX_H
#define RM_OPS_INDEX_APPROX_H

#include "ops.h"
#include "ops_kernels.h"
#include "approx_scores.h"

// rm_indexer is a batch of tokens. top_k entries are selected for each.
typedef struct {
	const rm_op_kernels *k;
	const rm_approx *approx; // NULL: there is none
	rm_pool *pool;
	rm_index a;
	int64_t row, count; // the tokens of the batch
	int64_t most;       // entries of the last token
	int64_t groups;     // heads in groups of RM_INDEX_LANES
	float *qt;          // [count][groups][dim][RM_INDEX_LANES]
	float *w;           // [count][groups][RM_INDEX_LANES]
	float *scores;      // [count][most]
	int blocks;          // a token of the batch does not keep all of its blocks
	int64_t most_blocks; // of the last token, with blocks
	float *best;         // [count][most_blocks] scores of blocks

	// Used with approximate scores only.
	uint16_t *query; // [count][rm_approx_heads/32][rm_approx_block]
	float *weight;   // [count][rm_approx_heads]
	int32_t *candidates; // [count][most], entries that the approximate score does not decide; those of blocks
	int64_t *many;   // [count], number of candidates
	int64_t *certain;   // [count], entries selected by their approximate score
	double *bound;   // [count] first the sum of rm_approx_reach, then rm_approx_bound
	uint32_t *norms; // [rm_approx_parts]
} rm_indexer;

// RM_APPROX_PART is the number of entries per item of the loop over approximate
// scores.
#define RM_APPROX_PART 128
static inline int64_t rm_approx_parts(int64_t entries) { return (entries + RM_APPROX_PART - 1) / RM_APPROX_PART; }

// rm_index_visible is the number of entries visible to token t.
static inline int64_t rm_index_visible(const rm_index *a, int64_t t) {
	int64_t n = (a->pos + t + 1) / a->ratio;
	return n < a->entries ? n : a->entries;
}

// rm_index_blocks is the number of blocks visible to token t; 0 without blocks.
static inline int64_t rm_index_blocks(const rm_index *a, int64_t t) {
	return a->blocks ? (rm_index_visible(a, t) + a->block_size - 1) / a->block_size : 0;
}

// rm_index_approx selects for those tokens of a batch that see more than top_k
// entries. Approximate scores decide between entries if they differ by more than the
// error bound allows; the other entries, the candidates, are scored exactly by
// index_scores. The selection is the one that exact scores alone would give. qt
// and w are already filled in. If there is no bound (keys or queries that are
// not finite or too large), nothing is selected and *chosen is 0. Returns RM_OK
// or RM_E_MEMORY.
int rm_index_approx(rm_indexer *x, int *chosen);

#endif
