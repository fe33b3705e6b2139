#version 450
// copy_columns: out[row][col] = x[row][col] of matrices with rows of other lengths. Grid:
// [columns][rows]. Reads 4 bytes per element and writes 4.
#include "prelude.glsl"
#include "../../gpu/args/elementwise.h"

ARGUMENTS(rmg_columns)

void main() {
	const uint col = thread_in_grid(), row = gl_WorkGroupID.y;
	if (col < args.cols) Floats(push.at[1] + 4ul * args.out_cols * row).at[col] = InFloats(push.at[2] + 4ul * args.x_cols * row).at[col];
}
