#version 450
// route_table looks the experts of a token up in its row of the table. One thread per slot; it
// scores all experts of its token, which are few. Tokens outside this view are left to another
// dispatch. A token or expert out of range is reported as a fault, and its slot gets
// expert 0 with weight 0. Per slot: reads 4*used bytes of the table and of the logits, writes 8.
// With lists, which are of one token whose table is in one view, the only workgroup also
// writes these, 4*experts bytes.
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/route.h"

ARGUMENTS(rmg_route)
shared uint area[SHARED < 4 ? 4 : SHARED]; // with args.lists the experts [used]
#define EXPERT(i) int(area[i])
#include "route.glsl"

// give stores what a slot gets.
void give(uint slot, int expert, float weight) {
	Ints(push.at[1]).at[slot] = expert;
	if (args.lists != 0 && !listed(expert)) weight = 0.0;
	Floats(push.at[2]).at[slot] = weight;
	if (args.lists != 0) area[slot] = uint(expert);
}

// look_up finds what a slot gets.
void look_up(uint slot) {
	const uint used = args.used, row = slot / used;
	const int token = InInts(push.at[4]).at[row];
	if (token < 0 || token >= args.vocabulary) {
		report(6, FAULT_ROW);
		give(slot, 0, 0.0);
		return;
	}
	if (token < args.first || token >= args.first + args.count) return;
	const uint64_t chosen = push.at[5] + args.shift + 4ul * used * uint(token - args.first); // [used]
	const uint64_t logits = push.at[3] + 4ul * args.experts * row;                           // [experts]
	uint unknown = 0;
	float sum = 0;
	for (uint i = 0; i < used; i++) {
		const int e = InInts(chosen).at[i];
		if (e < 0 || e >= int(args.experts)) {
			unknown++;
		} else {
			sum += expert_score(InFloats(logits).at[e]);
		}
	}
	if (unknown != 0) {
		report(6, FAULT_ROW);
		give(slot, 0, 0.0);
		return;
	}
	const int own = InInts(chosen).at[slot % used];
	give(slot, own, weight_of(expert_score(InFloats(logits).at[own]), sum));
}

void main() {
	const uint slot = thread_in_grid();
	if (slot < args.rows * args.used) look_up(slot);
	if (args.lists == 0) return;
	barrier();
	list_slots(Ints(push.at[7]), Ints(push.at[8]));
}
