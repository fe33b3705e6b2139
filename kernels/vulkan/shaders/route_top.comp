#version 450
// route_top selects the `used` experts with the largest biased scores, descending, among those of
// the best groups if there are groups; among equals the lower index comes first. One
// workgroup per token. Its threads stride over the experts; the rank of an expert is the
// number of experts before it, so that no thread waits for another's choice. Shared memory:
// sort keys [experts], scores [experts], then the scores and the numbers of the selected, [used]
// each, then sort keys [groups].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/route.h"

ARGUMENTS(rmg_route)
shared uint area[SHARED < 4 ? 4 : SHARED];
#define EXPERT(i) int(area[2 * args.experts + args.used + (i)])
#include "route.glsl"

// group_value is what stands for the n experts of a group from `first` on, given in order.
float group_value(uint first, uint n, int kind) {
	uint best = area[first], second = order_of(uintBitsToFloat(0xff800000u));
	for (uint e = 1; e < n; e++) {
		const uint order = area[first + e];
		if (order > best) {
			second = best;
			best = order;
		} else if (order > second) {
			second = order;
		}
	}
	precise const float two = float_of(best) + float_of(second);
	return kind == RMG_GROUP_TOP_TWO && n > 1 ? two : float_of(best);
}

// place_of is the number of those among the n from `first` on that come before number e: the
// larger ones, and equal ones with a lower index.
uint place_of(uint first, uint n, uint e) {
	const uint own = area[first + e];
	uint place = 0;
	for (uint k = 0; k < e; k++) place += area[first + k] >= own ? 1 : 0;
	for (uint k = e + 1; k < n; k++) place += area[first + k] > own ? 1 : 0;
	return place;
}

void main() {
	const uint n = args.experts, used = args.used, row = gl_WorkGroupID.x, t = gl_LocalInvocationIndex;
	const uint scores = n, chosen = 2 * n, groups = chosen + 2 * used; // in area
	InFloats logits = InFloats(push.at[3] + 4ul * n * row), bias = InFloats(push.at[4]); // [experts]
	Ints ids = Ints(push.at[1] + 4ul * used * row);                                      // [used]
	Floats weights = Floats(push.at[2] + 4ul * used * row);                              // [used]
	float most = logits.at[0], divisor = 1;
	if (args.score == RMG_SOFTMAX) {
		for (uint e = 1; e < n; e++) most = most > logits.at[e] ? most : logits.at[e];
	}
	for (uint e = t; e < n; e += THREADS) {
		const float x = logits.at[e];
		precise const float below = x - most;
		const float score = args.score == RMG_SOFTMAX ? exponential(below) : args.score == RMG_SIGMOID ? sigmoid_of(x) : expert_score(x);
		area[scores + e] = floatBitsToUint(score);
	}
	barrier();
	if (args.score == RMG_SOFTMAX) {
		precise float sum = 0;
		for (uint e = 0; e < n; e++) sum = sum + uintBitsToFloat(area[scores + e]);
		divisor = sum;
		barrier(); // all have their sum
	}
	for (uint e = t; e < n; e += THREADS) {
		const float own = uintBitsToFloat(area[scores + e]), score = args.score == RMG_SOFTMAX ? quotient(own, divisor) : own;
		area[scores + e] = floatBitsToUint(score);
		precise float biased = score;
		if (args.biased != 0) biased = score + bias.at[e];
		area[e] = order_of(biased);
	}
	barrier();
	if (args.groups > 1) {
		const uint size = n / args.groups;
		for (uint g = t; g < args.groups; g += THREADS) area[groups + g] = order_of(group_value(g * size, size, args.group_score));
		barrier();
		for (uint e = t; e < n; e += THREADS) {
			if (place_of(groups, args.groups, e / size) >= args.groups_used) area[e] = 0; // before every number
		}
		barrier();
	}
	for (uint e = t; e < n; e += THREADS) {
		const uint place = place_of(0, n, e);
		if (place < used) {
			ids.at[place] = int(e);
			area[chosen + used + place] = e;
			area[chosen + place] = area[scores + e];
		}
	}
	barrier();
	precise float sum = 0;
	for (uint i = 0; i < used; i++) sum = sum + uintBitsToFloat(area[chosen + i]);
	for (uint i = t; i < used; i += THREADS) {
		const bool masked = args.lists != 0 && !listed(EXPERT(i));
		weights.at[i] = masked ? 0.0 : weight_of(uintBitsToFloat(area[chosen + i]), sum);
	}
	if (args.lists != 0) list_slots(Ints(push.at[5]), Ints(push.at[6]));
}
