#version 450
// hc_products computes the dot products of the flattened streams with the rows of Fn, and their
// sum of squares, per span of RMG_HC_SPAN columns of each stream: out[t][span][k] is the dot
// product with row k, followed by the sum of squares. One simdgroup takes TOKENS tokens, FNS rows of Fn and
// one span; the order of summation does not depend on these. Grid: [spans][FNS rows,
// RMG_HC_SIMDGROUPS times][TOKENS tokens].
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 0; // number in GGUF files: F32, F16 or BF16
layout(constant_id = 11) const uint TOKENS = 1;
layout(constant_id = 12) const uint FNS = 2;
#include "lanes.glsl"
#include "exact.glsl"
#include "unblocked.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_products)

void main() {
	const uint k = (gl_WorkGroupID.y * RMG_HC_SIMDGROUPS + simdgroup()) * FNS, count = uint(args.count), rows = uint(args.rows);
	const uint t0 = gl_WorkGroupID.z * TOKENS, span = gl_WorkGroupID.x, all = uint(args.products) + 1;
	const uint streams = uint(args.streams), cols = uint(args.cols);
	// Out of range, the last token or row is computed a second time and not stored.
	uint64_t x0[TOKENS], w0[FNS];
	for (uint t = 0; t < TOKENS; t++) x0[t] = push.at[2] + 4ul * streams * cols * min(t0 + t, rows - 1);
	for (uint f = 0; f < FNS; f++) w0[f] = push.at[3] + args.shift + uint64_t(min(k + f, count - 1)) * args.row_bytes;
	float sum[TOKENS][FNS], squares[TOKENS];
	for (uint t = 0; t < TOKENS; t++) {
		squares[t] = 0;
		for (uint f = 0; f < FNS; f++) sum[t][f] = 0;
	}
	for (uint s = 0; s < streams; s++) {
		for (uint c = s * cols + span * RMG_HC_SPAN + lane(); c < s * cols + min(cols, (span + 1) * RMG_HC_SPAN); c += 32) {
			float x[TOKENS];
			[[unroll]] for (uint t = 0; t < TOKENS; t++) {
				x[t] = InFloats(x0[t]).at[c];
				squares[t] = fused(x[t], x[t], squares[t]);
			}
			[[unroll]] for (uint f = 0; f < FNS; f++) {
				const float w = unblocked_at(w0[f], c);
				[[unroll]] for (uint t = 0; t < TOKENS; t++) sum[t][f] = fused(w, x[t], sum[t][f]);
			}
		}
	}
	for (uint t = 0; t < TOKENS; t++) {
		Floats row = Floats(push.at[1] + 4ul * all * (uint64_t(t0 + t) * uint(args.spans) + span)); // [products+1]
		for (uint f = 0; f < FNS; f++) {
			const float s = lanes_sum(sum[t][f]);
			if (lane() == 0 && t0 + t < rows && k + f < count) row.at[uint(args.first) + k + f] = s;
		}
		const float s = lanes_sum(squares[t]);
		if (lane() == 0 && t0 + t < rows && k == 0 && args.first == 0) row.at[all - 1] = s;
	}
}
