// Arguments of the kernels of route.metal, for Metal and for Go.
#ifndef RMM_ROUTE_H
#define RMM_ROUTE_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// route_top: as kernels.Score and kernels.GroupScore.
enum { RMM_SQRT_SOFTPLUS, RMM_SIGMOID, RMM_SOFTMAX };
enum { RMM_GROUP_BEST, RMM_GROUP_TOP_TWO };

// route_top and route_table.
struct rmm_route {
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
};

// expert_mask and expert_compact.
struct rmm_share {
	uint32_t slots;
	int32_t experts, start, end;
};

#endif
