#version 450
// hc_head collapses the streams with weights derived from the products. Every workgroup derives
// the weights of its row itself: they are few. Per column: reads 4*streams bytes, writes 4.
// Grid: [columns][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "hyper.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc)
shared float mixed[RMG_HC_STREAMS + 1];
shared float weights[RMG_HC_STREAMS];

void main() {
	const uint s = uint(args.streams), cols = uint(args.cols), spans = uint(args.spans), t = gl_LocalInvocationIndex, row = gl_WorkGroupID.y;
	InFloats parts = InFloats(push.at[3] + 4ul * spans * (s + 1) * row); // [spans][streams+1]
	if (t <= s) mixed[t] = spans_sum(parts, t, s + 1, spans);
	barrier();
	if (t < s) {
		precise const float mean = quotient(mixed[s], float(s * cols)) + args.rms_eps;
		precise const float scaled = quotient(1.0, root(mean)) * mixed[t];
		precise const float w = sigmoid(fused(scaled, InFloats(push.at[5]).at[0], InFloats(push.at[4]).at[t])) + args.eps;
		weights[t] = w;
	}
	barrier();
	const uint c = thread_in_grid();
	if (c >= cols) return;
	InFloats h = InFloats(push.at[2] + 4ul * s * cols * row); // [streams][cols]
	float sum = 0;
	for (uint i = 0; i < s; i++) sum = fused(weights[i], h.at[i * cols + c], sum);
	Floats(push.at[1] + 4ul * cols * row).at[c] = sum;
}
