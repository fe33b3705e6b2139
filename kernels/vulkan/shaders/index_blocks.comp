#version 450
// index_blocks: the score of a block is the largest of its visible entries, and infinite for the
// block of the newest entry. One thread per block. Reads 4 bytes per entry, writes 4 per block.
// Grid: [blocks][rows].
#include "prelude.glsl"
#include "../../gpu/args/index.h"

ARGUMENTS(rmg_index)
#include "index.glsl"

void main() {
	const uint row = gl_WorkGroupID.y, block = thread_in_grid();
	const uint n = seen(row), size = uint(args.block_size), stride = (uint(args.most) + size - 1) / size, first = block * size;
	if (first >= n) return;
	InFloats scores = InFloats(push.at[2] + 4ul * uint(args.most) * row); // [most]
	float score = uintBitsToFloat(0x7f800000u);
	if (first + size < n) {
		score = scores.at[first];
		for (uint i = first + 1; i < first + size; i++) score = max(score, scores.at[i]);
	}
	Floats(push.at[1] + 4ul * stride * row).at[block] = score;
}
