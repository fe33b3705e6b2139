#version 450
// gather: out[i] = x[rows[i]]. An index out of range is reported as a fault and its row of out is
// not written. Grid: [columns][rows]. Reads 4 bytes per element and writes 4.
#include "prelude.glsl"
#include "../../gpu/args/elementwise.h"

ARGUMENTS(rmg_gather)

void main() {
	const uint col = thread_in_grid();
	const int row = InInts(push.at[3]).at[gl_WorkGroupID.y];
	if (row < 0 || uint(row) >= args.have) {
		if (col == 0) report(4, FAULT_ROW);
		return;
	}
	if (col < args.cols) Floats(push.at[1] + 4ul * args.cols * gl_WorkGroupID.y).at[col] = InFloats(push.at[2] + 4ul * args.cols * uint(row)).at[col];
}
