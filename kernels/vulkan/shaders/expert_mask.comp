#version 450
// expert_mask zeroes the weights of slots of experts outside [start, end). One thread per slot.
// Reads 4 bytes per slot, writes 4 where it zeroes.
#include "prelude.glsl"
#include "../../gpu/args/route.h"

ARGUMENTS(rmg_share)

void main() {
	const uint slot = thread_in_grid();
	if (slot >= args.slots) return;
	const int e = InInts(push.at[2]).at[slot];
	if (e < args.start || e >= args.end) Floats(push.at[1]).at[slot] = 0;
}
