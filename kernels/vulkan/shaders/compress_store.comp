#version 450
// compress_store stores projections into the rings of one compressor or two: those of the tokens
// with a row of APE in its view. One thread per element. Reads and writes 8 bytes per element.
// Grid: [largest width][rows][compressors]. The buffers of the second one follow those of the first.
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/kv_cache.h"

ARGUMENTS(rmg_compress_store)

void main() {
	const uint k = gl_WorkGroupID.z, buffers = 5 * k, width = uint(args.width[k]), col = thread_in_grid();
	const uint p = uint(args.pos) + gl_WorkGroupID.y, row = p % uint(args.ratio[k]), first = uint(args.ape_first[k]);
	if (col >= width || row < first || row >= first + uint(args.ape_count[k])) return;
	const uint64_t ape = push.at[buffers + 5] + args.ape_shift[k] + uint64_t(row - first) * args.ape_row_bytes[k];
	float bias = 0;
	if (args.ape_type[k] == RMG_APE_F32) {
		bias = InFloats(ape).at[col];
	} else if (args.ape_type[k] == RMG_APE_F16) {
		bias = half_value(InShorts(ape).at[col]);
	} else if (args.ape_type[k] == RMG_APE_BF16) {
		bias = bfloat_value(InShorts(ape).at[col]);
	}
	const uint64_t from = 4ul * width * gl_WorkGroupID.y, to = 4ul * width * (p % uint(args.ring_rows[k])); // rows of [width]
	Floats(push.at[buffers + 1] + to).at[col] = InFloats(push.at[buffers + 3] + from).at[col];
	precise const float score = InFloats(push.at[buffers + 4] + from).at[col] + bias;
	Floats(push.at[buffers + 2] + to).at[col] = score;
}
