#version 450
// index_mask makes the scores of entries outside the blocks of a row the least, if the row does not
// keep all its blocks. One thread per entry. Grid: [entries][rows].
#include "prelude.glsl"
#include "../../gpu/args/index.h"

ARGUMENTS(rmg_index)
#include "index.glsl"

void main() {
	const uint row = gl_WorkGroupID.y, entry = thread_in_grid();
	const uint n = seen(row), size = uint(args.block_size), kept = uint(args.kept);
	if (entry >= n || n <= kept * size) return;
	const int block = int(entry / size);
	InInts blocks = InInts(push.at[2] + 4ul * kept * row); // [kept], ascending
	uint low = 0, high = kept;
	while (low < high) {
		const uint middle = (low + high) / 2;
		if (blocks.at[middle] < block) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	const bool among = low < kept && blocks.at[min(low, kept - 1)] == block;
	if (!among) Floats(push.at[1] + 4ul * uint(args.most) * row).at[entry] = uintBitsToFloat(0xff800000u);
}
