#version 450
// packed_expert: out[slot] = w[e]·in, or with glu out[slot] = weight * swiglu(out[slot], w[e]·in),
// quantised weights, the input packed. Grid: [tiles of 16 rows][places], then
// workgroups that clear rows. Reads the matrices of the local experts once for each slot.
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
	if (place >= args.places) {
		set_zero(push.at[1], offsets, slots, weights, (place - args.places) * gl_NumWorkGroups.x + gl_WorkGroupID.x, 7);
		return;
	}
	const uint first = (gl_WorkGroupID.x * SIMDGROUPS + simdgroup()) * RMG_PACKED_ROWS;
	const int slot = slot_at(offsets, slots, place, 7);
	if (slot < 0) return;
	const float weight = weights.at[slot];
	if (weight == 0 || int(place) < offsets.at[args.low] || int(place) >= offsets.at[args.high]) return;
	const uint64_t x = push.at[2] + uint64_t(RMG_PACKED_GROUP) * (args.cols / 32u) * (uint(slot) / args.share);
	const uint64_t apart[1] = uint64_t[1](0ul);
	const int e = expert_at(offsets, place);
	float y[1];
	products(matrix_of(args.w, push.at[6], e), args.w.row_bytes, first, rows, args.cols, x, apart, y);
	if (lane() < 4u && first + lane() < rows) {
		Floats out_ = Floats(push.at[1] + 4ul * rows * uint(slot)); // row of [slots][rows]
		const uint r = first + lane();
		const float product = scaled(args.w, push.at[8], e, y[0]);
		out_.at[r] = args.glu != 0 ? glu(out_.at[r], product, weight, args.clamp) : product;
	}
}
