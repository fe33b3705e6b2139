#version 450
// norm_rope is RMSNorm of one head, its rotation, the Hadamard transform, and its rounding to
// float16 in a ring, each if it is wanted, with the bits of the kernels that do one of them. One
// workgroup per head keeps it in shared memory. Reads and writes 4 bytes per element (and reads
// the weight), and writes 2 in the ring. Grid: [heads][rows].
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "rotate.glsl"
#include "../../gpu/args/norms.h"
#define ROW Floats
#define ELEMENT(row, i) row.at[i]
#include "squares.glsl"

ARGUMENTS(rmg_norm_rope)
shared float s[SHARED < 4 ? 4 : SHARED];
#include "hadamard.glsl"

void main() {
	const uint t = thread(), dim = uint(args.head_dim), row = gl_WorkGroupID.y;
	Floats x = Floats(push.at[1] + 4ul * dim * (uint64_t(row) * uint(args.heads) + gl_WorkGroupID.x)); // [head_dim]
	InFloats freqs = InFloats(push.at[3]), weight = InFloats(push.at[4]); // [pairs]; [head_dim], or none
	float scale = 1.0;
	if (args.normed != 0) {
		precise const float mean = quotient(sum_squares(x, dim), float(dim)) + args.eps;
		scale = quotient(1.0, root(mean));
	}
	for (uint i = t; i < dim; i += THREADS) {
		precise float v = x.at[i] * scale;
		if (args.weighted != 0) v = v * weight.at[i];
		s[i] = v;
	}
	barrier();
	const float p = float(InInts(push.at[2]).at[row]);
	for (uint i = t; i < uint(args.pairs); i += THREADS) {
		precise const float turned = p * freqs.at[i];
		vec2 angle = cos_sin(turned, args.magnitude);
		if (args.inverse != 0) angle.y = -angle.y;
		const uint at = uint(args.first) + uint(args.step) * i;
		const vec2 y = turn(vec2(s[at], s[at + uint(args.apart)]), angle);
		s[at] = y.x;
		s[at + uint(args.apart)] = y.y;
	}
	barrier();
	if (args.hadamard != 0) hadamard(dim);
	for (uint i = t; i < dim; i += THREADS) {
		precise const float scaled = s[i] * args.hadamard_scale;
		const float v = args.hadamard != 0 ? scaled : s[i];
		x.at[i] = v;
		if (args.ring_rows > 0) {
			const uint slot = (uint(args.ring_pos) + row) % uint(args.ring_rows);
			Shorts(push.at[5] + 2ul * (args.ring_skip + uint64_t(slot) * dim)).at[i] = uint16_t(half_bits(v));
		}
	}
}
