// Scores of the indexer that are near the true ones: faster (performance.md,
// "Long context"), and off by no more than a bound that is known. Where two
// entries are further apart than twice that, they need no other score.
//
// A half is the sum of two bfloat16 without error, a query the sum of two and a
// rest of at most 2^-16 of it. Three of the four products of such parts are
// added up in float32 by the tile unit; the fourth is at most 2^-15 of the
// whole.
#ifndef RM_OPS_NEAR_H
#define RM_OPS_NEAR_H

#include <stddef.h>
#include <stdint.h>

// Entries whose keys are taken apart together, and heads whose queries are.
#define RM_NEAR_ENTRIES 32
#define RM_NEAR_HEADS 32

typedef struct rm_near {
	// keys takes n <= 32 keys [n][dim] of halves apart, to
	// [dim/32][2][32][32] bfloat16: chunk, high or low part, entry, column. It
	// returns the bits of their largest sum of squares, which are at least
	// those of infinity if a key is not finite.
	uint32_t (*keys)(uint16_t *to, const uint16_t *keys, int64_t n, int64_t dim);
	// query takes a token's queries [heads][dim] apart, to
	// [heads/32][dim/32][2][2][16][16][2] bfloat16: chunk, high or low part,
	// half of the heads, column, head, columns i and 16+i; and pads the
	// weights, times scale, with zeros. It returns the sum of rm_near_reach.
	double (*query)(uint16_t *to, float *padded, const float *q, const float *weight, float scale, int64_t heads, int64_t dim);
	// scores writes the scores of n entries, whose keys are blocks of 32, the
	// last one filled up.
	void (*scores)(float *score, const uint16_t *keys, int64_t n, const uint16_t *query, const float *padded,
	               int64_t heads, int64_t dim);
} rm_near;

// rm_near_at is NULL where there are no such scores: at levels below amx, and
// for keys that are not whole chunks of 32.
const rm_near *rm_near_at(int level, int64_t dim);

// rm_near_heads is heads as they are padded, rm_near_block the bfloat16 of a
// block of keys or of queries.
static inline int64_t rm_near_heads(int64_t heads) { return (heads + RM_NEAR_HEADS - 1) / RM_NEAR_HEADS * RM_NEAR_HEADS; }
static inline int64_t rm_near_block(int64_t dim) { return 2 * 32 * dim; }

// rm_near_reach is |weight| times the length of a head's query, rounded up;
// squares are the sum of its squares. Infinite where nothing can be said.
double rm_near_reach(float weight, double squares);

// rm_near_bound is how far a near score and the one of index_scores may be from
// each other. reach is the sum of rm_near_reach over the heads, norm the largest
// length of a key. Infinite where nothing can be said.
double rm_near_bound(double reach, double norm, int64_t heads, int64_t dim);

#endif
