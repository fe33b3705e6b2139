// Arguments of the kernels of elements.metal, for Metal and for Go.
#ifndef RM_METAL_ELEMENTS_H
#define RM_METAL_ELEMENTS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Kernels over n elements.
struct rm_elements {
	uint32_t n;
	float clamp;    // of SwiGLU
	uint32_t first; // of to_half and from_half: where the halves begin in their binding
};

// sum_slots.
struct rm_sum_slots {
	uint32_t rows, used, cols;
	int32_t rounded; // to half first
};

// gather.
struct rm_gather {
	uint32_t cols;
	uint32_t have; // rows of x
};

#endif
