// Arguments of the kernels of kv_cache.metal, for Metal and for Go.
#ifndef RMM_KV_CACHE_H
#define RMM_KV_CACHE_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

struct rmm_store_kv {
	int32_t cols, pos, ring_rows;
	uint32_t ring_skip; // elements before the ring in its binding
};

// The type of the position encodings.
enum { RMM_APE_F32, RMM_APE_F16, RMM_APE_BF16, RMM_APE_NONE };

struct rmm_compress {
	int32_t pos, ratio, ring_rows;
	int32_t dim, width; // width is dim, or 2*dim with overlap
	int32_t pairs;      // RotDim/2
	int32_t overlap, hadamard;
	int32_t first;       // entry of threadgroup 0
	uint32_t cache_skip; // elements before the cache in its binding
	int32_t ape_type, ape_first, ape_count; // rows of APE in this view
	uint32_t ape_row_bytes, ape_shift;
	float eps, hadamard_scale;
};

#endif
