#version 450
// plain_expert: packed_expert for the types of weight.glsl and float32 input. Grid: [tiles of
// 8 rows][places], then workgroups that clear rows.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 1;
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[9]
#include "plain.glsl"
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
	const uint r = (gl_WorkGroupID.x * SIMDGROUPS + simdgroup()) * 2u + (lane() >> 4);
	const int slot = slot_at(offsets, slots, place, 7);
	if (slot < 0) return;
	const float weight = weights.at[slot];
	if (weight == 0 || int(place) < offsets.at[args.low] || int(place) >= offsets.at[args.high]) return;
	const uint64_t x = push.at[2] + 4ul * args.cols * (uint(slot) / args.share);
	const int e = expert_at(offsets, place);
	const uint64_t w = matrix_of(args.w, push.at[6], e) + uint64_t(min(r, rows - 1u)) * args.w.row_bytes;
	const float y = scaled(args.w, push.at[8], e, plain_product(w, x, args.cols));
	if ((lane() & 15u) == 0u && r < rows) {
		Floats out_ = Floats(push.at[1] + 4ul * rows * uint(slot)); // row of [slots][rows]
		out_.at[r] = args.glu != 0 ? glu(out_.at[r], y, weight, args.clamp) : y;
	}
}
