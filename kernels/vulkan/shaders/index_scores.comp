#version 450
// index_scores: one thread per entry, for any number of heads and any dim. Grid: [entries][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/index.h"

ARGUMENTS(rmg_index)
#include "index.glsl"

void main() {
	const uint row = gl_WorkGroupID.y, entry = thread_in_grid(), n = seen(row), heads = uint(args.heads), dim = uint(args.dim);
	if (entry >= n || n <= uint(args.top_k)) return;
	InFloats q = InFloats(push.at[2] + 4ul * heads * dim * row);                                            // [heads][dim]
	InFloats weights = InFloats(push.at[3] + 4ul * heads * row);                                            // [heads]
	InShorts key = InShorts(push.at[4] + 2ul * (args.cache_skip + uint64_t(entry) * dim));                  // [dim]
	float score = 0;
	for (uint h = 0; h < heads; h++) {
		float s = 0;
		for (uint d = 0; d < dim; d++) s = fma(q.at[h * dim + d], half_value(key.at[d]), s);
		score = fma(weights.at[h] * args.scale, max(0.0, s), score);
	}
	Floats(push.at[1] + 4ul * uint(args.most) * row).at[entry] = score;
}
