// Arguments of the kernels of routed experts, for the shading languages and for Go.
#ifndef RMG_EXPERTS_H
#define RMG_EXPERTS_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

// The matrices of a view: expert e's begins shift + (e-first)*stride bytes into the
// binding.
struct rmg_expert_view {
	uint64_t stride;
	uint32_t row_bytes;
	uint32_t shift;
	int32_t first;
	int32_t scale;      // where expert 0's factor of the products is in the buffer of scales; -1: none
	int32_t scale_step; // from one expert's to the next
	int32_t unused;     // padding to a multiple of 8
};

// The type of a member: GLSL has no keyword before it.
#ifdef VULKAN
#define RMG_EXPERT_VIEW rmg_expert_view
#else
#define RMG_EXPERT_VIEW struct rmg_expert_view
#endif

// Which rows of the output a dispatch sets to zero.
#define RMG_ZERO_NONE 0
#define RMG_ZERO_MID 1 // of slots in the groups that are not computed
#define RMG_ZERO_OUT 2 // of all slots that are not computed

// expert_gate_up, expert_gemv, expert_gemm and expert_sum.
struct rmg_experts {
	RMG_EXPERT_VIEW w, up; // up: of expert_gate_up, where w is gate
	uint32_t rows, cols; // of a matrix
	uint32_t slots; // rows of the output
	uint32_t share; // slots that share a row of the input, or of the output of expert_sum
	int32_t experts, start, end; // of the model, and the local ones [start, end)
	int32_t low, high; // the local ones in this view: [low, high)
	int32_t zero; // RMG_ZERO_*
	int32_t glu; // 1: the output holds gate's products, these are up's
	float clamp; // of glu
	int32_t vectors; // rows of the input can be read as float4
	uint32_t places; // threadgroups along y that compute; those after them set zeros
	int32_t plus; // of expert_sum: 1: a further row is added to each sum
};

#endif
