#version 450
// sum_slots: out[t] is the sum of the slots of token t, in slot order, and of a row of plus. One
// thread per element of out. Reads 4*used bytes per element of out, with plus 4 more, writes 4.
#include "prelude.glsl"
#include "../../gpu/args/elementwise.h"

ARGUMENTS(rmg_sum_slots)

void main() {
	const uint col = thread_in_grid(), row = gl_WorkGroupID.y;
	if (col >= args.cols) return;
	InFloats slots = InFloats(push.at[2] + 4ul * args.used * args.cols * row); // [used][cols]
	precise float sum = 0;
	for (uint i = 0; i < args.used; i++) {
		const float v = slots.at[i * args.cols + col];
		if (i == 0) {
			sum = v; // 0 + -0 would not be -0
		} else {
			sum = sum + v;
		}
	}
	if (args.plus != 0) sum = sum + InFloats(push.at[3] + 4ul * args.cols * row).at[col];
	Floats(push.at[1] + 4ul * args.cols * row).at[col] = sum;
}
