#version 450
// layer_norm: out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias. One workgroup per
// row. Its threads stride over the row three times, the last two from the cache. Reads 4
// bytes per element (and weight and bias), writes 4. out may be x.
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "../../gpu/args/norms.h"

ARGUMENTS(rmg_layer_norm)

void main() {
	const uint n = uint(args.cols), t = thread();
	Floats out_ = Floats(push.at[1] + 4ul * n * gl_WorkGroupID.x), x = Floats(push.at[2] + 4ul * n * gl_WorkGroupID.x); // [cols]
	InFloats weight = InFloats(push.at[3]), bias = InFloats(push.at[4]);                                               // [cols]
	precise float sum = 0;
	for (uint i = t; i < n; i += THREADS) sum = sum + x.at[i];
	const float mean = quotient(group_sum(sum), float(n));
	float spread = 0;
	for (uint i = t; i < n; i += THREADS) {
		precise const float d = x.at[i] - mean;
		spread = fused(d, d, spread);
	}
	precise const float below = quotient(group_sum(spread), float(n)) + args.eps;
	const float scale = quotient(1.0, root(below));
	for (uint i = t; i < n; i += THREADS) {
		precise const float d = (x.at[i] - mean) * scale;
		out_.at[i] = fused(d, weight.at[i], bias.at[i]);
	}
}
