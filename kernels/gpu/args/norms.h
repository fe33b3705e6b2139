// Arguments of the kernels of norms, for the shading languages and for Go.
#ifndef RMG_NORMS_H
#define RMG_NORMS_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

struct rmg_rms_norm {
	int32_t cols;
	int32_t weighted; // whether there is a weight
	int32_t vectors;  // rows consist of aligned float4
	float eps;
};

struct rmg_layer_norm {
	int32_t cols;
	float eps;
};

// Heads of a threadgroup of rope.
#define RMG_ROPE_HEADS 16

struct rmg_rope {
	int32_t heads, head_dim;
	int32_t pairs;   // RotDim/2
	int32_t first;   // rotated element of a head
	int32_t step;    // elements from a pair to the next
	int32_t apart;   // elements from the first of a pair to the second
	int32_t inverse; // rotate by the negative angle
	float magnitude; // of sine and cosine
};

struct rmg_norm_rope {
	int32_t heads, head_dim;
	int32_t pairs, first, step, apart, inverse; // as of rmg_rope
	float magnitude;
	int32_t normed, weighted, hadamard;
	int32_t vectors;        // heads consist of aligned float4
	float eps;              // of the norm
	float hadamard_scale;
	int32_t ring_pos;       // position of row 0
	int32_t ring_rows;      // 0: nothing is stored
	uint32_t ring_skip;     // elements before the ring in its binding
};

struct rmg_hadamard {
	int32_t dim;  // of hadamard_block: elements of a block
	int32_t step; // of hadamard_step: distance of the elements of a pair
	int32_t n;    // of hadamard_step: pairs in all
	float scale;
};

#endif
