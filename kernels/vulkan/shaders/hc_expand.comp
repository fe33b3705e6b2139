#version 450
// hc_expand: h[t][j] = post[t][j]*y[t] + sum_i comb[t][i][j]*h[t][i], in place. One thread takes
// all streams of a column, so all are read before any is written. Per column: reads
// 4+4*streams bytes, writes 4*streams. Grid: [columns][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc_streams)

void main() {
	const uint cols = uint(args.cols), streams = uint(args.streams), row = gl_WorkGroupID.y;
	Floats h = Floats(push.at[1] + 4ul * cols * streams * row);                // [streams][cols]
	InFloats y = InFloats(push.at[2] + 4ul * cols * row);                      // [cols]
	InFloats post = InFloats(push.at[3] + 4ul * streams * row);                // [streams]
	InFloats comb = InFloats(push.at[4] + 4ul * streams * streams * row);      // [streams][streams]
	const uint each = args.vectors != 0 ? 4 : 1, first = each * thread_in_grid(); // columns of a thread
	for (uint c = first; c < min(first + each, cols); c++) {
		float old[RMG_HC_STREAMS];
		for (uint s = 0; s < streams; s++) old[s] = h.at[s * cols + c];
		const float v = y.at[c];
		for (uint j = 0; j < streams; j++) {
			precise float sum = post.at[j] * v;
			for (uint s = 0; s < streams; s++) sum = fused(comb.at[s * streams + j], old[s], sum);
			h.at[j * cols + c] = sum;
		}
	}
}
