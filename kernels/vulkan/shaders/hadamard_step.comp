#version 450
// hadamard_step is one step of a transform that is too long for shared memory: sums and
// differences of elements `step` apart, scaled. One thread a pair. Reads and writes 8 bytes per
// pair.
#include "prelude.glsl"
#include "../../gpu/args/norms.h"

ARGUMENTS(rmg_hadamard)

void main() {
	const uint i = thread_in_grid();
	if (i >= uint(args.n)) return;
	Floats x = Floats(push.at[1]); // [n*2]
	const uint step = uint(args.step), at = (i & ~(step - 1)) * 2 + (i & (step - 1));
	precise const float a = x.at[at], b = x.at[at + step], sum = (a + b) * args.scale, difference = (a - b) * args.scale;
	x.at[at] = sum;
	x.at[at + step] = difference;
}
