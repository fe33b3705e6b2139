// Arguments of the kernels of elementwise, for the shading languages and for Go.
#ifndef RMG_ELEMENTWISE_H
#define RMG_ELEMENTWISE_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

// Kernels over n elements.
struct rmg_elements {
	uint32_t n;
	float clamp;    // swiglu_elements
	uint32_t first; // to_float16, from_float16: first float16 element in its binding
};

// sum_slots.
struct rmg_sum_slots {
	uint32_t rows, used, cols;
	uint32_t plus; // 1: a further row is added to each sum
};

// sum_exact.
struct rmg_sum_exact {
	uint32_t rows, count, cols;
	int32_t add; // to what sums hold
};

// copy_columns.
struct rmg_columns {
	uint32_t rows, cols;
	uint32_t out_cols, x_cols; // of a row
};

// gather.
struct rmg_gather {
	uint32_t cols;
	uint32_t have; // rows of x; larger indices are faults
};

#endif
