#version 450
// packed_gemm: out[t][r] = w[r] · x[t] for many rows of packed activations, quantised weights, in
// tiles of 32 by 32. Grid: [tiles of 32 tokens][tiles of 32 rows][groups]. Reads the weights once
// for each tile of tokens, and x once for each tile of rows.
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 8;
#include "lanes.glsl"
#include "exact.glsl"
#define TABLES push.at[4]
#include "decode.glsl"
#include "../../gpu/args/packed.h"
#include "packed_tile.glsl"
#include "../../gpu/args/matmul.h"

ARGUMENTS(rmg_matmul)

void main() {
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens), z = gl_WorkGroupID.z;
	const uint token = gl_WorkGroupID.x * RMG_TILE_TOKENS, first = gl_WorkGroupID.y * RMG_TILE_ROWS;
	if (thread() < RMG_TILE_TOKENS) {
		// x of a token: whole groups of x_stride values
		tile_source[thread()] = (args.x_first + z * cols) / 32u + args.x_stride / 32u * min(token + thread(), tokens - 1u);
	}
	barrier();
	vec4 acc[TILE_TOKENS];
	tile_products(push.at[3] + args.skip + z * args.group_bytes, args.row_bytes, first, rows, cols, push.at[2], acc);
	[[unroll]] for (uint pass = 0; pass < 4; pass++) {
		precise const float y = tile_sum(acc, pass) * args.scale;
		const uint t = token + tile_token(), r = first + tile_row(pass);
		if (t < tokens && r < rows) {
			const uint64_t at = uint64_t(t) * args.out_stride + args.out_first + z * rows + r;
			Floats(push.at[1] + 4ul * at).at[0] = y;
		}
	}
}
