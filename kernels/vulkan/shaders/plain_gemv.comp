#version 450
// plain_gemv: out[t][r] = w[r] · x[t] for TOKENS rows of float32 activations at a time, weights of
// the types of weight.glsl, with the bits of the CPU: sixteen sums of every sixteenth column.
// A simdgroup computes two rows, a lane one of their sums. Grid: [tiles of 8 rows][tiles of
// TOKENS tokens][groups]. Reads the weights once for each tile of tokens.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 1;
layout(constant_id = 11) const uint TOKENS = 1;
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[4]
#include "plain.glsl"
#include "../../gpu/args/matmul.h"

ARGUMENTS(rmg_matmul)

void main() {
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint z = gl_WorkGroupID.z, token = gl_WorkGroupID.y * TOKENS, l = lane() & 15u;
	const uint row = (gl_WorkGroupID.x * SIMDGROUPS + simdgroup()) * 2u + (lane() >> 4);
	const uint64_t w = push.at[3] + args.skip + z * args.group_bytes + uint64_t(min(row, rows - 1u)) * args.row_bytes;
	uint64_t x[TOKENS];
	float acc[TOKENS];
	[[unroll]] for (uint t = 0; t < TOKENS; t++) {
		x[t] = push.at[2] + 4ul * (args.x_first + z * cols + uint64_t(args.x_stride) * min(token + t, tokens - 1u));
		acc[t] = 0;
	}
	uint i = l;
	for (; i + 112u < cols; i += 128u) { // loads of eight turns at once
		float v[8];
		[[unroll]] for (uint k = 0; k < 8; k++) v[k] = weight_at(w, i + 16u * k);
		[[unroll]] for (uint t = 0; t < TOKENS; t++) {
			[[unroll]] for (uint k = 0; k < 8; k++) acc[t] = fused(v[k], InFloats(x[t]).at[i + 16u * k], acc[t]);
		}
	}
	for (; i < cols; i += 16u) {
		const float v = weight_at(w, i);
		[[unroll]] for (uint t = 0; t < TOKENS; t++) acc[t] = fused(v, InFloats(x[t]).at[i], acc[t]);
	}
	// rm_sum16: lanes 8 apart, then 4, 2 and 1.
	[[unroll]] for (uint t = 0; t < TOKENS; t++) {
		precise const float sum = lanes_sum(acc[t], 16) * args.scale;
		if (l == 0u && row < rows && token + t < tokens) {
			const uint64_t at = uint64_t(token + t) * args.out_stride + args.out_first + z * rows + row;
			Floats(push.at[1] + 4ul * at).at[0] = sum; // of [tokens][out_stride]
		}
	}
}
