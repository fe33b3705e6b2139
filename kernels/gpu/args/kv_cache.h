// Arguments of the kernels of kv_cache, for the shading languages and for Go.
#ifndef RMG_KV_CACHE_H
#define RMG_KV_CACHE_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

struct rmg_store_kv {
	int32_t cols, pos, ring_rows;
	uint32_t ring_skip; // elements before the ring in its binding
};

// The type of the position encodings.
#define RMG_APE_F32 0
#define RMG_APE_F16 1
#define RMG_APE_BF16 2
#define RMG_APE_NONE 3

// compress_store, of one or two compressors.
#define RMG_COMPRESSORS 2
struct rmg_compress_store {
	int32_t pos;
	int32_t ratio[RMG_COMPRESSORS], ring_rows[RMG_COMPRESSORS], width[RMG_COMPRESSORS];
	int32_t ape_type[RMG_COMPRESSORS];
	int32_t ape_first[RMG_COMPRESSORS], ape_count[RMG_COMPRESSORS]; // rows of APE in its view
	uint32_t ape_row_bytes[RMG_COMPRESSORS], ape_shift[RMG_COMPRESSORS];
};

// compress_entry and compress_latent.
struct rmg_compress {
	int32_t pos, ratio, ring_rows;
	int32_t dim, width; // width is dim, or 2*dim with overlap
	int32_t pairs;      // RotDim/2
	int32_t overlap, hadamard;
	int32_t first;       // entry of threadgroup 0
	uint32_t cache_skip; // elements before the cache in its binding
	float eps, hadamard_scale;
};

#endif
