#version 450
// rope rotates RotDim elements of each of RMG_ROPE_HEADS heads of one row. The cosines and sines
// of 64 pairs at a time are computed once for all of these heads. Reads and writes 8 bytes
// per pair. Grid: [blocks of heads][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "rotate.glsl"
#include "../../gpu/args/norms.h"

ARGUMENTS(rmg_rope)
shared vec2 angles[64];

void main() {
	const uint t = gl_LocalInvocationIndex;
	const uint first = gl_WorkGroupID.x * RMG_ROPE_HEADS, heads = min(uint(RMG_ROPE_HEADS), uint(args.heads) - first);
	// [heads][head_dim]
	Floats x = Floats(push.at[1] + 4ul * ((uint64_t(gl_WorkGroupID.y) * uint(args.heads) + first) * uint(args.head_dim) + uint(args.first)));
	InFloats freqs = InFloats(push.at[3]); // [pairs], radians per position
	const float p = float(InInts(push.at[2]).at[gl_WorkGroupID.y]);
	for (uint begin = 0; begin < uint(args.pairs); begin += 64) {
		const uint n = min(64u, uint(args.pairs) - begin);
		for (uint i = t; i < n; i += THREADS) {
			precise const float turned = p * freqs.at[begin + i];
			vec2 angle = cos_sin(turned, args.magnitude);
			if (args.inverse != 0) angle.y = -angle.y;
			angles[i] = angle;
		}
		barrier();
		for (uint i = t; i < heads * n; i += THREADS) {
			const uint at = (i / n) * uint(args.head_dim) + uint(args.step) * (begin + i % n);
			const vec2 y = turn(vec2(x.at[at], x.at[at + uint(args.apart)]), angles[i % n]);
			x.at[at] = y.x;
			x.at[at + uint(args.apart)] = y.y;
		}
		barrier();
	}
}
