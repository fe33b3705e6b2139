#version 450
// rms_norm: out = x / sqrt(mean(x^2) + eps) * weight. One workgroup per row. 64 threads
// read the row to add its squares, and all threads read it again from the cache. Reads 4 bytes per element (and the
// weight), writes 4. out may be x: a thread reads again only what it writes itself.
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "../../gpu/args/norms.h"
#define ROW Floats
#define ELEMENT(row, i) row.at[i]
#include "squares.glsl"

ARGUMENTS(rmg_rms_norm)

void main() {
	const uint n = uint(args.cols), t = thread();
	Floats out_ = Floats(push.at[1] + 4ul * n * gl_WorkGroupID.x), x = Floats(push.at[2] + 4ul * n * gl_WorkGroupID.x); // [cols]
	InFloats weight = InFloats(push.at[3]);                                                                            // [cols], or none
	precise const float mean = quotient(sum_squares(x, n), float(n)) + args.eps;
	const float scale = quotient(1.0, root(mean));
	for (uint i = t; i < n; i += THREADS) {
		precise float v = x.at[i] * scale;
		if (args.weighted != 0) v = v * weight.at[i];
		out_.at[i] = v;
	}
}
