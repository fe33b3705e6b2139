// Arguments of the kernels of index.metal, for Metal and for Go.
#ifndef RMM_INDEX_H
#define RMM_INDEX_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

enum {
	RMM_INDEX_TILE = 32, // entries of a tile of index_scores_128
	RMM_INDEX_DIM = 128, // the dim it is made for
	RMM_INDEX_HEADS = 64, // and the most heads, a multiple of 8
};

struct rmm_index {
	int32_t pos, ratio;      // pos of row 0
	int32_t heads, dim, top_k;
	int32_t entries;         // in the cache
	int32_t most;            // entries that the last row sees: the length of a row of scores
	int32_t tiles;           // of RMM_INDEX_TILE entries for a threadgroup
	uint32_t cache_skip;     // elements before the cache in its binding
	float scale;
};

#endif
