#version 450
// store_kv rounds rows to float16 and stores them in the ring. One thread per element. Reads 4
// bytes per element, writes 2. Grid: [columns][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/kv_cache.h"

ARGUMENTS(rmg_store_kv)

void main() {
	const uint cols = uint(args.cols), col = thread_in_grid(), row = gl_WorkGroupID.y;
	if (col >= cols) return;
	const uint slot = (uint(args.pos) + row) % uint(args.ring_rows);
	Shorts ring = Shorts(push.at[1] + 2ul * (args.ring_skip + uint64_t(slot) * cols)); // [cols]
	ring.at[col] = uint16_t(half_bits(InFloats(push.at[2] + 4ul * cols * row).at[col]));
}
