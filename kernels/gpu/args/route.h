// Arguments of the kernels of route, for the shading languages and for Go.
#ifndef RMG_ROUTE_H
#define RMG_ROUTE_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

// route_top: as kernels.Score and kernels.GroupScore.
#define RMG_SQRT_SOFTPLUS 0
#define RMG_SIGMOID 1
#define RMG_SOFTMAX 2
#define RMG_GROUP_BEST 0
#define RMG_GROUP_TOP_TWO 1

// route_top and route_table.
struct rmg_route {
	uint32_t rows, experts, used;
	int32_t score;                // route_top
	uint32_t groups, groups_used; // route_top: groups <= 1: none
	int32_t group_score;          // route_top
	int32_t biased;    // route_top: there is a bias
	int32_t normalise; // divide by the sum
	float scale;
	int32_t vocabulary;   // route_table: tokens of the whole table
	int32_t first, count; // route_table: tokens that are bound
	uint32_t shift;       // route_table: bytes before them
	int32_t lists;        // 1: list the slots of the experts [start, end) of the one token, and set other weights to 0
	int32_t start, end;
};

// expert_mask and expert_compact.
struct rmg_share {
	uint32_t slots;
	int32_t experts, start, end;
};

#endif
