#version 450
// route_table looks the experts of a token up in its row of the table. One thread per slot; it
// scores all experts of its token, which are few. Tokens outside this view are left to another
// dispatch. A token or expert out of range is reported as a fault, and its slot gets
// expert 0 with weight 0. Per slot: reads 4*used bytes of the table and of the logits, writes 8.
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/route.h"

ARGUMENTS(rmg_route)
#include "route.glsl"

void main() {
	const uint used = args.used, slot = thread_in_grid();
	if (slot >= args.rows * used) return;
	const uint row = slot / used;
	const int token = InInts(push.at[4]).at[row];
	bool good = token >= 0 && token < args.vocabulary;
	int own = 0;
	float score = 0;
	precise float sum = 0;
	if (good) {
		if (token < args.first || token >= args.first + args.count) return;
		InInts chosen = InInts(push.at[5] + args.shift + 4ul * used * uint(token - args.first)); // [used]
		InFloats logits = InFloats(push.at[3] + 4ul * args.experts * row);                       // [experts]
		for (uint i = 0; i < used; i++) {
			const int e = chosen.at[i];
			const bool known = e >= 0 && e < int(args.experts);
			good = good && known;
			const float s = expert_score(logits.at[known ? e : 0]);
			sum = sum + s;
			if (i == slot % used) {
				own = e;
				score = s;
			}
		}
	}
	if (!good) report(6, FAULT_ROW);
	Ints(push.at[1]).at[slot] = good ? own : 0;
	Floats(push.at[2]).at[slot] = good ? weight_of(score, sum) : 0.0;
}
