// Approximate scores of the indexer: faster than exact ones (docs/performance.md,
// "Long context"), with a known bound on the error. Two entries need no exact score if
// their approximate scores differ by more than twice the bound.
//
// A float16 is exactly the sum of two bfloat16; a query is the sum of two
// bfloat16 and a remainder of at most 2^-16 of its magnitude. Of the four
// products of these parts, the tile unit computes three and sums them in
// float32; the fourth, which is omitted, is at most 2^-15 of the whole.
#ifndef RM_APPROX_SCORES_H
#define RM_APPROX_SCORES_H

#include <stddef.h>
#include <stdint.h>

// Entries per block of keys, and heads per block of queries.
#define RM_APPROX_ENTRIES 32
#define RM_APPROX_HEADS 32

typedef struct rm_approx {
	// keys splits n <= 32 float16 keys [n][dim] into [dim/32][2][32][32]
	// bfloat16: chunk, high or low part, entry, column. It returns the bits of
	// the largest sum of squares of any key as a float; they compare at least
	// as large as infinity's if a key is not finite.
	uint32_t (*keys)(uint16_t *to, const uint16_t *keys, int64_t n, int64_t dim);
	// query splits a token's queries [heads][dim] into
	// [heads/32][dim/32][2][2][16][16][2] bfloat16: block of heads, chunk, high
	// or low part, 16 of the heads, column, head, columns i and 16+i. It also
	// multiplies the weights by scale and pads them with zeros. It returns the
	// sum of rm_approx_reach.
	double (*query)(uint16_t *to, float *padded, const float *q, const float *weight, float scale, int64_t heads, int64_t dim);
	// scores writes the scores of n entries. Their keys are blocks of 32; the
	// last block is padded with zeros.
	void (*scores)(float *score, const uint16_t *keys, int64_t n, const uint16_t *query, const float *padded,
	               int64_t heads, int64_t dim);
} rm_approx;

// rm_approx_at is NULL where there are no approximate scores: at levels below
// amx, and for a dim that is not a multiple of 32.
const rm_approx *rm_approx_at(int level, int64_t dim);

// rm_approx_heads is heads rounded up by padding, rm_approx_block the number of
// bfloat16 in a block of keys or of queries.
static inline int64_t rm_approx_heads(int64_t heads) { return (heads + RM_APPROX_HEADS - 1) / RM_APPROX_HEADS * RM_APPROX_HEADS; }
static inline int64_t rm_approx_block(int64_t dim) { return 2 * 32 * dim; }

// rm_approx_reach is |weight| times the length of a head's query, rounded up;
// squares is the sum of the squares of the query's elements. Infinite where
// there is no bound.
double rm_approx_reach(float weight, double squares);

// rm_approx_bound is the largest possible difference between an approximate
// score and that of index_scores. reach is the sum of rm_approx_reach over the
// heads, norm the largest length of a key. Infinite where there is no bound.
double rm_approx_bound(double reach, double norm, int64_t heads, int64_t dim);

#endif
