// Arguments of the kernels of norms.metal, for Metal and for Go.
#ifndef RMM_NORMS_H
#define RMM_NORMS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

struct rmm_rms_norm {
	int32_t cols;
	int32_t weighted; // whether there is a weight
	int32_t vectors;  // rows consist of aligned float4
	float eps;
};

struct rmm_layer_norm {
	int32_t cols;
	float eps;
};

// Heads of a threadgroup of rope.
enum { RMM_ROPE_HEADS = 16 };

struct rmm_rope {
	int32_t heads, head_dim;
	int32_t pairs;   // RotDim/2
	int32_t first;   // rotated element of a head
	int32_t step;    // elements from a pair to the next
	int32_t apart;   // elements from the first of a pair to the second
	int32_t inverse; // rotate by the negative angle
	float magnitude; // of sine and cosine
};

struct rmm_hadamard {
	int32_t dim;  // of hadamard_block: elements of a block
	int32_t step; // of hadamard_step: distance of the elements of a pair
	int32_t n;    // of hadamard_step: pairs in all
	float scale;
};

#endif
