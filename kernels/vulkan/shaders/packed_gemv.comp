#version 450
// packed_gemv: out[t][r] = w[r] · x[t] for TOKENS rows of packed activations at a time, quantised
// weights. Grid: [tiles of 16 rows][tiles of TOKENS tokens][groups]. Reads the weights
// once for each tile of tokens, and 2.5 bytes for each value of x and four rows, from the caches.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 8;
layout(constant_id = 11) const uint TOKENS = 1;
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[4]
#include "decode.glsl"
#include "../../gpu/args/packed.h"
#include "packed.glsl"
#include "../../gpu/args/matmul.h"

ARGUMENTS(rmg_matmul)

void main() {
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint z = gl_WorkGroupID.z, token = gl_WorkGroupID.y * TOKENS;
	const uint first = (gl_WorkGroupID.x * SIMDGROUPS + simdgroup()) * RMG_PACKED_ROWS;
	const uint64_t matrix = push.at[3] + args.skip + z * args.group_bytes;
	// x of a token: whole groups of x_stride values
	const uint64_t x = push.at[2] + uint64_t(RMG_PACKED_GROUP) * ((args.x_first + z * cols) / 32u);
	uint64_t apart[TOKENS];
	[[unroll]] for (uint t = 0; t < TOKENS; t++) {
		apart[t] = uint64_t(RMG_PACKED_GROUP) * (args.x_stride / 32u) * min(token + t, tokens - 1u);
	}
	float y[TOKENS];
	products(matrix, args.row_bytes, first, rows, cols, x, apart, y);
	if (lane() < 4u && first + lane() < rows) {
		const uint64_t column = args.out_first + z * rows + first + lane();
		[[unroll]] for (uint t = 0; t < TOKENS; t++) {
			precise const float product = y[t] * args.scale;
			if (token + t < tokens) Floats(push.at[1] + 4ul * (uint64_t(token + t) * args.out_stride + column)).at[0] = product;
		}
	}
}
