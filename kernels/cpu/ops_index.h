// What the two ways of the indexer share.
#ifndef RM_OPS_INDEX_H
#define RM_OPS_INDEX_H

#include "ops.h"
#include "ops_kernels.h"
#include "ops_near.h"

// rm_indexer is the choice for a batch of tokens.
typedef struct {
	const rm_op_kernels *k;
	const rm_near *near; // NULL: there is none
	rm_pool *pool;
	rm_index a;
	int64_t row, count; // the tokens of the batch
	int64_t most;       // entries of the last token
	int64_t groups;     // heads in groups of RM_INDEX_LANES
	float *qt;          // [count][groups][dim][RM_INDEX_LANES]
	float *w;           // [count][groups][RM_INDEX_LANES]
	float *scores;      // [count][most]

	// Of the near way alone.
	uint16_t *query; // [count][rm_near_heads/32][rm_near_block]
	float *weight;   // [count][rm_near_heads]
	int32_t *doubts; // [count][most], the entries of which a token is in doubt
	int64_t *many;   // [count], how many
	int64_t *sure;   // [count], how many are chosen without
	double *bound;   // [count] first the sum of rm_near_reach, then rm_near_bound
	uint32_t *norms; // [rm_near_parts]
} rm_indexer;

// RM_NEAR_PART is the entries of one item of the near way's scoring loop.
#define RM_NEAR_PART 128
static inline int64_t rm_near_parts(int64_t entries) { return (entries + RM_NEAR_PART - 1) / RM_NEAR_PART; }

// rm_index_seen is how many entries token t sees.
static inline int64_t rm_index_seen(const rm_index *a, int64_t t) {
	int64_t n = (a->pos + t + 1) / a->ratio;
	return n < a->entries ? n : a->entries;
}

// rm_index_near chooses for those tokens of a batch that see more than top_k
// entries: by near scores, and by index_scores where these leave doubts. So it
// chooses what index_scores alone would. qt and w are filled. Where the near
// scores say nothing, for keys or queries that are not finite, or too large,
// nothing is chosen. Returns RM_OK or RM_E_MEMORY.
int rm_index_near(rm_indexer *x, int *chosen);

#endif
