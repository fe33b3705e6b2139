// Arguments of the kernel of several products of one row, for the shading languages and for Go.
#ifndef RMG_GEMV_MANY_H
#define RMG_GEMV_MANY_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

// The most matrices of a dispatch: each has a buffer, and one for what it gives. With a norm
// they are one less, because its weights are in the buffer of the last.
#define RMG_MANY 7

// What a matrix is.
#define RMG_MANY_SECOND 1 // of the second type
#define RMG_MANY_GATE 2   // of a SwiGLU, whose up is the next matrix

// gemv_many: out[k] = w[k] · x, or for a gate out[k] = swiglu(w[k] · x, w[k+1] · x).
struct rmg_gemv_many {
	uint32_t first[RMG_MANY]; // threadgroup of each matrix; an up has none
	uint32_t rows[RMG_MANY];
	uint32_t row_bytes[RMG_MANY]; // stride of rows
	float scale[RMG_MANY];        // of the products, 1 for none
	uint8_t shift[RMG_MANY];      // bytes before the first row
	uint8_t split[RMG_MANY];      // simdgroups that share a row: 1, 2 or 4
	uint8_t kind[RMG_MANY];       // RMG_MANY_* or 0
	uint8_t count;
	uint32_t cols;
	float clamp; // of the SwiGLU, if there is one
	uint32_t norm; // threads of rms_norm, whose order of sums the norm of x has; 0: no norm
	float eps;     // of the norm
};

#endif
