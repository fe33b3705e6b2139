#version 450
// hc_collapse: out[t] = sum_s pre[t][s]*h[t][s]. Per column: reads 4*streams bytes, writes 4.
// Grid: [columns][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_streams)

void main() {
	const uint cols = uint(args.cols), streams = uint(args.streams), row = gl_WorkGroupID.y;
	Floats out_ = Floats(push.at[1] + 4ul * cols * row);              // [cols]
	InFloats h = InFloats(push.at[2] + 4ul * cols * streams * row);   // [streams][cols]
	InFloats pre = InFloats(push.at[3] + 4ul * streams * row);        // [streams]
	const uint each = args.vectors != 0 ? 4 : 1, first = each * thread_in_grid(); // columns of a thread
	for (uint c = first; c < min(first + each, cols); c++) {
		float sum = 0;
		for (uint s = 0; s < streams; s++) sum = fused(pre.at[s], h.at[s * cols + c], sum);
		out_.at[c] = sum;
	}
}
