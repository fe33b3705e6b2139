#version 450
// index_scores_128 handles dim 128 and a multiple of 8 heads up to 64. A workgroup of 128 threads
// takes `tiles` tiles of 32 entries for one row: thread 32*s + e keeps the key of entry e
// in registers and multiplies it by the heads 8s.. and 32+8s..; their weighted sums are added
// in the order of s. Reads 256 bytes per entry and row, four times, three of them from the
// cache; writes 4. Grid: [entries][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/index.h"

ARGUMENTS(rmg_index)
#include "index.glsl"
shared float sums[4 * RMG_INDEX_TILE];

void main() {
	const uint row = gl_WorkGroupID.y, t = gl_LocalInvocationIndex, part = t / 32, e = t % 32;
	const uint n = seen(row), heads = uint(args.heads), begin = gl_WorkGroupID.x * uint(args.tiles) * RMG_INDEX_TILE;
	if (begin >= n || n <= uint(args.top_k)) return;
	const uint end = min(n, begin + uint(args.tiles) * RMG_INDEX_TILE);
	const uint64_t q = push.at[2] + 4ul * heads * RMG_INDEX_DIM * row;                 // [heads][128]
	InFloats weights = InFloats(push.at[3] + 4ul * heads * row);                       // [heads]
	Floats scores = Floats(push.at[1] + 4ul * uint(args.most) * row);                  // [most]
	for (uint tile = begin; tile < end; tile += RMG_INDEX_TILE) {
		InUint2s from = InUint2s(push.at[4] + 2ul * (args.cache_skip + uint64_t(min(tile + e, end - 1)) * RMG_INDEX_DIM));
		uvec2 key[RMG_INDEX_DIM / 4];
		for (uint d = 0; d < RMG_INDEX_DIM / 4; d++) key[d] = from.at[d];
		float sum = 0;
		for (uint i = 0; i < 16; i++) {
			const uint h = 32 * (i / 8) + 8 * part + i % 8;
			if (h >= heads) continue;
			InFloats head = InFloats(q + 4ul * RMG_INDEX_DIM * h);
			float s = 0;
			for (uint d = 0; d < RMG_INDEX_DIM / 4; d++) {
				const vec2 a = unpackHalf2x16(key[d].x), b = unpackHalf2x16(key[d].y);
				s = fma(head.at[4 * d], a.x, s);
				s = fma(head.at[4 * d + 1], a.y, s);
				s = fma(head.at[4 * d + 2], b.x, s);
				s = fma(head.at[4 * d + 3], b.y, s);
			}
			sum = fma(weights.at[h] * args.scale, max(0.0, s), sum);
		}
		sums[t] = sum;
		barrier();
		if (part == 0 && tile + e < end) {
			float score = sums[e];
			for (uint s = 1; s < 4; s++) score += sums[32 * s + e];
			scores.at[tile + e] = score;
		}
		barrier();
	}
}
