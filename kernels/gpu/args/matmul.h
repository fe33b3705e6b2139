// Arguments of the kernels of products, for the shading languages and for Go.
#ifndef RMG_MATMUL_H
#define RMG_MATMUL_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

// embed.
struct rmg_embed {
	int32_t rows;       // of the whole matrix: ids at or above are faults
	int32_t first;      // first row of the view
	int32_t count;      // rows in the view
	int32_t cols;       // weights per row
	uint32_t row_bytes; // stride of rows
	uint32_t shift;     // bytes before the first row of the view
};

// gemv and gemm: out[t][r] = w[r] · x[t], for one or more groups: matrices that have
// their own columns of x and of out.
struct rmg_matmul {
	uint64_t group_bytes; // from a group's weights to the next's
	uint64_t skip;        // bytes before the first row of group 0
	int32_t rows;         // of a group
	int32_t cols;         // of a row of weights, and of a group's part of x
	int32_t tokens;       // rows of x
	int32_t split;        // gemv: simdgroups that share a row of weights: 1, 2 or 4
	uint32_t row_bytes;   // stride of rows of weights
	uint32_t x_stride;    // elements between the x of two tokens
	uint32_t x_first;     // first element of group 0 in a token's x
	uint32_t out_stride;  // elements between the out of two tokens
	uint32_t out_first;   // first element of group 0 in a token's out
	float scale;          // of the products, 1 for none
};

// Shapes of the threadgroups, which the host needs for the grid.
#define RMG_GEMV_SIMDGROUPS 4 // per threadgroup of gemv
#define RMG_GEMV_ROWS_ONE 4 // rows of weights per simdgroup with one token
#define RMG_GEMV_ROWS_MORE 2 // and with more
#define RMG_GEMV_TOKENS 8 // maximum number of tokens per simdgroup
#define RMG_GEMM_ROWS 64 // rows of weights of a tile
#define RMG_GEMM_TOKENS 32 // tokens of a tile
#define RMG_GEMM_COLS 32 // columns in threadgroup memory at a time
#define RMG_GEMM_SIMDGROUPS 4 // per threadgroup of gemm

#endif
