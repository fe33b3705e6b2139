#version 450
// embed: row ids[t] of a table as float32, a thread for 16 columns. Grid: [columns][ids].
#include "prelude.glsl"
layout(constant_id = 10) const uint TYPE = 8;
#include "exact.glsl"
#define TABLES push.at[5]
#include "decode.glsl"
#include "weight.glsl"
#include "../../gpu/args/matmul.h"

ARGUMENTS(rmg_embed)

// eight gives the columns from i on.
void eight(Floats out_, uint64_t row, uint i, uint cols) {
	if (PLAIN) {
		for (uint k = i; k < min(i + 8u, cols); k++) out_.at[k] = weight_at(row, k);
		return;
	}
	const uint g = i / 32u, part = i / 8u % 4u;
	uint w[2];
	int scale;
	float s, m0, m1;
	quarter(row, g, part, w[0], w[1], scale);
	scales(row, g, s, m0, m1);
	const float least = HALF_MINIMA && part > 1u ? m1 : m0;
	for (uint k = 0; k < 8; k++) {
		const int q = bitfieldExtract(int(w[k / 4u]), int(8u * (k % 4u)), 8);
		// The integer scale first, which is exact: its sign is that of a zero.
		precise const float by = s * float(scale);
		precise float v = by * float(q);
		if (MINIMA || HALF_MINIMA) v = v + least;
		out_.at[i + k] = v;
	}
}

void main() {
	const int id = InInts(push.at[2]).at[gl_WorkGroupID.y];
	if (id < 0 || id >= args.rows) {
		if (thread_in_grid() == 0u) report(4, FAULT_ROW);
		return;
	}
	if (id < args.first || id - args.first >= args.count) return; // in another view
	const uint cols = uint(args.cols);
	Floats out_ = Floats(push.at[1] + 4ul * (uint64_t(gl_WorkGroupID.y) * cols)); // [cols]
	const uint64_t row = push.at[3] + args.shift + uint64_t(uint(id - args.first)) * args.row_bytes;
	for (uint i = 16u * thread_in_grid(); i < min(16u * thread_in_grid() + 16u, cols); i += 8u) eight(out_, row, i, cols);
}
