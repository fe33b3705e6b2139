#version 450
// expert_compact groups the slots of experts in [start, end), ascending within an expert. A
// simdgroup has one expert, or the end of the offsets, and scans all slots twice: it counts
// the slots of the preceding experts, which is its offset, then writes its own in order. So
// no simdgroup waits for another and one dispatch suffices. Reads 8*slots bytes per expert,
// nearly all from the caches, writes 4 bytes per expert and per slot.
#include "prelude.glsl"
#include "lanes.glsl"
#include "../../gpu/args/route.h"

ARGUMENTS(rmg_share)

void main() {
	Ints offsets = Ints(push.at[1]), slots = Ints(push.at[2]); // [experts+1], [slots]
	InInts ids = InInts(push.at[3]);                           // [slots]
	const int e = int(gl_WorkGroupID.x * SIMDGROUPS + simdgroup());
	uint before = 0;
	for (uint s = lane(); s < args.slots; s += 32) {
		const int id = ids.at[s];
		if (id >= args.start && id < args.end && id < e) before++;
	}
	before = lanes_sum(before);
	if (lane() == 0 && e <= args.experts) offsets.at[e] = int(before);
	const bool local = e >= args.start && e < args.end;
	for (uint from = 0; from < args.slots; from += 32) {
		const uint s = from + lane();
		const uint mine = local && s < args.slots && ids.at[s] == e ? 1 : 0;
		const uint place = before + lanes_before(mine);
		if (mine != 0) slots.at[place] = int(s);
		before += lanes_sum(mine);
	}
}
