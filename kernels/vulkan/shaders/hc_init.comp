#version 450
// hc_init: h[t][s] = x[t]. One thread per column writes all streams. Per column: reads 4
// bytes, writes 4*streams. Grid: [columns][rows].
#include "prelude.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_streams)

void main() {
	const uint cols = uint(args.cols), streams = uint(args.streams), row = gl_WorkGroupID.y;
	Floats h = Floats(push.at[1] + 4ul * cols * streams * row);      // [streams][cols]
	InFloats x = InFloats(push.at[2] + 4ul * cols * row);            // [cols]
	const uint each = args.vectors != 0 ? 4 : 1, first = each * thread_in_grid(); // columns of a thread
	for (uint c = first; c < min(first + each, cols); c++) {
		const float v = x.at[c];
		for (uint s = 0; s < streams; s++) h.at[s * cols + c] = v;
	}
}
