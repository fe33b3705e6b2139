// Arguments of the kernels of index, for the shading languages and for Go.
#ifndef RMG_INDEX_H
#define RMG_INDEX_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

#define RMG_INDEX_TILE 32 // entries per tile of index_scores_128
#define RMG_INDEX_DIM 128 // its dim
#define RMG_INDEX_HEADS 64 // and its maximum number of heads, a multiple of 8

struct rmg_index {
	int32_t pos, ratio;      // pos of row 0
	int32_t heads, dim, top_k;
	int32_t entries;         // number of entries in the cache
	int32_t most;            // entries visible to the last row: the stride of the scores
	int32_t tiles;           // of RMG_INDEX_TILE entries, per threadgroup
	int32_t kept, block_size; // of the blocks of a row, and their entries; 0 without blocks
	int32_t per;             // entries of a score of index_select: 1, or those of a block
	uint32_t cache_skip;     // elements before the cache in its binding
	float scale;
	int32_t rotated;         // of index_scores_128: the queries are rotated and transformed first
	int32_t q_pairs;         // that are rotated, at the end of a query
	float hadamard_scale;
};

#endif
