// Arguments of the kernels of products with packed activations, for the shading languages
// and for Go. Packed activations are groups of RMG_PACKED_GROUP bytes for 32 values each:
// the upper parts q and the lower parts r of n = 128*q + r as 32 and 32 signed bytes, the
// scale d, d times the sum of n, and that of its first and of its last 16 (float32).
#ifndef RMG_PACKED_H
#define RMG_PACKED_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

#define RMG_PACKED_GROUP 80
#define RMG_PACKED_ROWS 4       // rows of weights of a simdgroup
#define RMG_PACKED_SIMDGROUPS 4 // of a threadgroup

// Tiles of products with many rows of activations.
#define RMG_TILE_ROWS 32
#define RMG_TILE_TOKENS 32
#define RMG_TILE_THREADS 256

// pack.
struct rmg_pack {
	uint32_t groups; // of 32 values, in all
};

#endif
