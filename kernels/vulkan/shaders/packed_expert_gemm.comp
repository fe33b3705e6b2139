#version 450
// packed_expert_gemm: packed_expert for many slots of an expert, in tiles of 32 slots by 32 rows.
// Grid: [tiles of rows][tiles of slots], then workgroups that clear rows. The number of tiles of
// slots is only known on the device: the grid has the maximum, and a workgroup finds its
// tile from the offsets or exits. Reads the matrices of the local experts once for 32 slots.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 8;
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[9]
#include "decode.glsl"
#include "../../gpu/args/packed.h"
#include "packed_tile.glsl"
#include "../../gpu/args/experts.h"

ARGUMENTS(rmg_experts)
#include "experts.glsl"

shared int tile_slot[RMG_TILE_TOKENS]; // -1: not computed

void main() {
	InInts offsets = InInts(push.at[3]);     // [experts+1]
	InInts slots = InInts(push.at[4]);       // [slots]
	InFloats weights = InFloats(push.at[5]); // [slots]
	const uint rows = args.rows;
	if (gl_WorkGroupID.y >= args.places) {
		set_zero(push.at[1], offsets, slots, weights, (gl_WorkGroupID.y - args.places) * gl_NumWorkGroups.x + gl_WorkGroupID.x, 7);
		return;
	}
	// The tile: each lane counts those of one expert. All simdgroups do the same.
	int e = -1, at = 0;
	uint before = 0;
	for (int from = args.low; from < args.high && e < 0; from += 32) {
		const int k = from + int(lane());
		const int count = k < args.high ? max(offsets.at[k + 1] - offsets.at[k], 0) : 0;
		const uint tiles = uint(count + RMG_TILE_TOKENS - 1) / RMG_TILE_TOKENS, begin = before + lanes_before(tiles);
		const uint skip = lanes_sum(begin + tiles <= gl_WorkGroupID.y ? 1u : 0u), of = lanes_from(begin, min(skip, 31u));
		if (skip < 32u) {
			e = from + int(skip);
			at = int(gl_WorkGroupID.y - of) * RMG_TILE_TOKENS;
		}
		before += lanes_sum(tiles);
	}
	if (e < 0) return;
	const int n = min(RMG_TILE_TOKENS, offsets.at[e + 1] - offsets.at[e] - at);
	if (thread() < RMG_TILE_TOKENS) {
		int slot = int(thread()) < n ? slot_at(offsets, slots, uint(offsets.at[e] + at) + thread(), 7) : -1;
		if (slot >= 0 && weights.at[slot] == 0) slot = -1;
		tile_slot[thread()] = slot;
		tile_source[thread()] = slot < 0 ? 0u : args.cols / 32u * (uint(slot) / args.share);
	}
	barrier();
	vec4 acc[TILE_TOKENS];
	const uint first = gl_WorkGroupID.x * RMG_TILE_ROWS;
	tile_products(matrix_of(args.w, push.at[6], e), args.w.row_bytes, first, rows, args.cols, push.at[2], acc);
	[[unroll]] for (uint pass = 0; pass < 4; pass++) {
		const float y = scaled(args.w, push.at[8], e, tile_sum(acc, pass));
		const int slot = tile_slot[tile_token()];
		const uint r = first + tile_row(pass);
		if (slot >= 0 && r < rows) {
			Floats out_ = Floats(push.at[1] + 4ul * rows * uint(slot)); // row of [slots][rows]
			out_.at[r] = args.glu != 0 ? glu(out_.at[r], y, weights.at[slot], args.clamp) : y;
		}
	}
}
