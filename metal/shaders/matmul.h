// Arguments of the kernels of matmul_*.metal, for Metal and for Go.
#ifndef RM_METAL_MATMUL_H
#define RM_METAL_MATMUL_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Kernels that look rows up.
struct rm_embed {
	int32_t rows;       // of the whole matrix
	int32_t first;      // row that the view begins with
	int32_t count;      // rows of the view
	int32_t cols;       // weights of a row
	uint32_t row_bytes; // from one row to the next
	uint32_t shift;     // bytes before the first row of the view
	int32_t tokens;
};

#endif
