#version 450
// hc_gate adds the gated value to one stream of one row: see kernels.HCGateArgs. One workgroup per
// stream and row; its threads stride over the columns, once for the three sums and once to
// add. Per column: reads 24 bytes, writes 4. Grid: [streams][rows].
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "hyper.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_gate)

void main() {
	const uint cols = uint(args.cols), streams = uint(args.streams), s = gl_WorkGroupID.x, row = gl_WorkGroupID.y, t = thread();
	Floats h = Floats(push.at[1] + 4ul * cols * (uint64_t(row) * streams + s));                  // [cols]
	const uint64_t kv = push.at[2] + 4ul * cols * (streams + 1) * row;                           // [streams+1][cols]
	InFloats key = InFloats(kv + 4ul * cols * s), value = InFloats(kv + 4ul * cols * streams);   // [cols]
	InFloats h_norm = InFloats(push.at[3] + 4ul * cols * s), key_norm = InFloats(push.at[4] + 4ul * cols * s); // [cols]
	float squares = 0, key_squares = 0, sum = 0;
	for (uint c = t; c < cols; c += THREADS) {
		squares = fused(h.at[c], h.at[c], squares);
		key_squares = fused(key.at[c], key.at[c], key_squares);
		precise const float a = key.at[c] * key_norm.at[c], b = h.at[c] * h_norm.at[c];
		sum = fused(a, b, sum);
	}
	squares = group_sum(squares);
	key_squares = group_sum(key_squares);
	sum = group_sum(sum);
	precise const float mean = quotient(squares, float(cols)) + args.eps, key_mean = quotient(key_squares, float(cols)) + args.eps;
	precise const float scaled = sum * quotient(1.0, root(mean)) * quotient(1.0, root(key_mean));
	const float d = quotient(scaled, root(float(cols)));
	const float size = root(max(abs(d), 1e-6));
	const float gate = sigmoid(d < 0 ? -size : size);
	for (uint c = t; c < cols; c += THREADS) h.at[c] = fused(gate, value.at[c], h.at[c]);
}
