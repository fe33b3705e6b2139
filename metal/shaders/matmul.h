// Arguments of the kernels of embed.metal, gemv.metal and gemm.metal, for Metal and for Go.
#ifndef RMM_MATMUL_H
#define RMM_MATMUL_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Kernels that look rows up.
struct rmm_embed {
	int32_t rows;       // of the whole matrix
	int32_t first;      // row that the view begins with
	int32_t count;      // rows of the view
	int32_t cols;       // weights of a row
	uint32_t row_bytes; // from one row to the next
	uint32_t shift;     // bytes before the first row of the view
};

// Products: out[t][r] = w[r] · x[t], for one group of rows or several. Group g
// has the rows from g * rows on, and its own columns of x.
struct rmm_matmul {
	int32_t rows;        // of a group
	int32_t cols;        // of a row of weights, and of the part of x that it meets
	int32_t tokens;      // rows of x
	int32_t split;       // simdgroups that share the weights of a row: 1, 2 or 4
	uint32_t first;      // row of the view that group 0 begins with
	uint32_t row_bytes;  // from one row of weights to the next
	uint32_t shift;      // bytes before the first row of the view
	uint32_t x_stride;   // elements from one token's x to the next
	uint32_t x_first;    // element of a token's x that group 0 begins with
	uint32_t out_stride; // elements from one token's out to the next
	uint32_t out_first;  // element of a token's out that group 0 begins with
};

// The shape of the threadgroups, which the host must know.
enum {
	RMM_GEMV_SIMDGROUPS = 4,  // of a threadgroup of gemv
	RMM_GEMV_ROWS_ONE = 4,    // rows of weights of a simdgroup that meets one token
	RMM_GEMV_ROWS_MORE = 2,   // and of one that meets more
	RMM_GEMV_TOKENS = 8,      // the most tokens of a simdgroup
	RMM_GEMM_ROWS = 64,      // rows of weights of a tile
	RMM_GEMM_TOKENS = 32,    // tokens of a tile
	RMM_GEMM_COLS = 32,      // columns that are in threadgroup memory at a time
	RMM_GEMM_SIMDGROUPS = 4, // of a threadgroup of gemm
};

#endif
