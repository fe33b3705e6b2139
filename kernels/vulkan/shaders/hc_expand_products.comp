#version 450
// hc_expand_products is hc_expand of a span of columns and then hc_products, with the same order
// of summation. One workgroup takes all rows of Fn, so that no other reads the columns that it
// changes; a thread expands one column, then a simdgroup takes 3 rows of Fn at a time. Reads Fn
// once per token. Grid: [spans][1][tokens].
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 0; // number in GGUF files: F32, F16 or BF16
#include "lanes.glsl"
#include "exact.glsl"
#include "unblocked.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_products)

#define FNS 3u

shared float tile[RMG_HC_EXPAND_STREAMS * RMG_HC_SPAN]; // [streams][RMG_HC_SPAN]

void main() {
	const uint streams = uint(args.streams), cols = uint(args.cols), row = gl_WorkGroupID.z, span = gl_WorkGroupID.x;
	const uint begin = span * RMG_HC_SPAN, n = min(cols - begin, uint(RMG_HC_SPAN)), all = uint(args.products) + 1;
	Floats h = Floats(push.at[2] + 4ul * (uint64_t(row) * streams * cols + begin)); // [streams][cols]
	InFloats y = InFloats(push.at[4] + 4ul * (uint64_t(row) * cols + begin));       // [n]
	InFloats post = InFloats(push.at[5] + 4ul * row * streams);                     // [streams]
	InFloats comb = InFloats(push.at[6] + 4ul * row * streams * streams);           // [streams][streams]
	for (uint c = thread(); c < n; c += THREADS) {
		float old[RMG_HC_EXPAND_STREAMS];
		for (uint s = 0; s < streams; s++) old[s] = h.at[s * cols + c];
		const float v = y.at[c];
		for (uint j = 0; j < streams; j++) {
			precise float sum = post.at[j] * v;
			for (uint s = 0; s < streams; s++) sum = fused(comb.at[s * streams + j], old[s], sum);
			h.at[j * cols + c] = sum;
			tile[j * RMG_HC_SPAN + c] = sum;
		}
	}
	barrier();
	const uint count = uint(args.count);
	Floats parts = Floats(push.at[1] + 4ul * all * (uint64_t(row) * uint(args.spans) + span)); // [products+1]
	for (uint first = 0; first < count; first += FNS * RMG_HC_EXPAND_SIMDGROUPS) { // as many turns in every simdgroup
		const uint k = first + simdgroup() * FNS;
		uint64_t w0[FNS];
		float sum[FNS], squares = 0;
		[[unroll]] for (uint f = 0; f < FNS; f++) {
			w0[f] = push.at[3] + args.shift + uint64_t(min(k + f, count - 1)) * args.row_bytes;
			sum[f] = 0;
		}
		for (uint s = 0; s < streams; s++) {
			for (uint c = lane(); c < n; c += 32) {
				const float x = tile[s * RMG_HC_SPAN + c];
				squares = fused(x, x, squares);
				[[unroll]] for (uint f = 0; f < FNS; f++) sum[f] = fused(unblocked_at(w0[f], s * cols + begin + c), x, sum[f]);
			}
		}
		for (uint f = 0; f < FNS; f++) {
			const float s = lanes_sum(sum[f]);
			if (lane() == 0 && k + f < count) parts.at[uint(args.first) + k + f] = s;
		}
		const float s = lanes_sum(squares);
		if (lane() == 0 && k == 0 && args.first == 0) parts.at[all - 1] = s;
	}
}
