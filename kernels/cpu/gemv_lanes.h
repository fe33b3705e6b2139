// GEMV with a weight row in each lane of a vector: gemv_lanes.inc.h.
#ifndef RM_GEMV_LANES_H
#define RM_GEMV_LANES_H

#include "matmul.h"

// Corrections that the integers of a type need; combined with or.
enum {
	L_OFFSET = 1,   // bytes are the weight + 128 >> lanes_kind.offset
	L_SUB = 2,      // an integer scale for each 16 columns
	L_OFFSET16 = 4, // with L_SUB: bytes are the weight + 32, or with L_SHIFT + 4
	L_SHIFT = 8,    // group r of a part is shifted left by nibble r of lanes_kind.shifts
	L_MIN32 = 16,   // a minimum for each 32 columns
	L_MIN16 = 32,   // for each 16
	L_UPPER = 64,   // the lower bytes of the activations are zero
};

#endif
