#version 450
// packed_gate_up: mid[slot] = weight * swiglu(gate[e]·x, up[e]·x), gate and up of one quantised
// type, x packed. Grid: [tiles of 16 rows][places]. Reads gate and up of the local
// experts once for each slot; writes mid once.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 8;
#define TOKENS 1
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[9]
#include "decode.glsl"
#include "../../gpu/args/packed.h"
#include "packed.glsl"
#include "../../gpu/args/experts.h"

ARGUMENTS(rmg_experts)
#include "experts.glsl"

void main() {
	InInts offsets = InInts(push.at[3]);     // [experts+1]
	InInts slots = InInts(push.at[4]);       // [slots]
	InFloats weights = InFloats(push.at[5]); // [slots]
	const uint place = gl_WorkGroupID.y, rows = args.rows;
	const uint first = (gl_WorkGroupID.x * SIMDGROUPS + simdgroup()) * RMG_PACKED_ROWS;
	const int slot = slot_at(offsets, slots, place, 8);
	if (slot < 0) return;
	Floats mid = Floats(push.at[1] + 4ul * rows * uint(slot)); // row of [slots][rows]
	const uint r = first + lane();
	const bool mine = lane() < 4u && first + lane() < rows;
	const float weight = weights.at[slot];
	if (weight == 0 || !owned(offsets, place)) {
		if (args.zero == RMG_ZERO_MID && mine) mid.at[r] = 0;
		return;
	}
	if (int(place) < offsets.at[args.low] || int(place) >= offsets.at[args.high]) return; // in another view
	const int e = expert_at(offsets, place);
	const uint64_t x = push.at[2] + uint64_t(RMG_PACKED_GROUP) * (args.cols / 32u) * (uint(slot) / args.share);
	const uint64_t apart[1] = uint64_t[1](0ul);
	float g[1], u[1];
	products(matrix_of(args.w, push.at[6], e), args.w.row_bytes, first, rows, args.cols, x, apart, g);
	products(matrix_of(args.up, push.at[7], e), args.up.row_bytes, first, rows, args.cols, x, apart, u);
	if (mine) mid.at[r] = glu(g[0], u[0], weight, args.clamp);
}
