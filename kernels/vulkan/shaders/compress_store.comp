#version 450
// compress_store stores projections into the rings: those of the tokens with a row of APE in this
// view. One thread per element. Reads and writes 8 bytes per element. Grid: [width][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/kv_cache.h"

ARGUMENTS(rmg_compress)

void main() {
	const uint width = uint(args.width), col = thread_in_grid(), p = uint(args.pos) + gl_WorkGroupID.y, row = p % uint(args.ratio);
	if (col >= width || row < uint(args.ape_first) || row >= uint(args.ape_first + args.ape_count)) return;
	const uint64_t ape = push.at[5] + args.ape_shift + uint64_t(row - uint(args.ape_first)) * args.ape_row_bytes;
	float bias = 0;
	if (args.ape_type == RMG_APE_F32) {
		bias = InFloats(ape).at[col];
	} else if (args.ape_type == RMG_APE_F16) {
		bias = half_value(InShorts(ape).at[col]);
	} else if (args.ape_type == RMG_APE_BF16) {
		bias = bfloat_value(InShorts(ape).at[col]);
	}
	const uint64_t from = 4ul * width * gl_WorkGroupID.y, to = 4ul * width * (p % uint(args.ring_rows)); // rows of [width]
	Floats(push.at[1] + to).at[col] = InFloats(push.at[3] + from).at[col];
	precise const float score = InFloats(push.at[4] + from).at[col] + bias;
	Floats(push.at[2] + to).at[col] = score;
}
