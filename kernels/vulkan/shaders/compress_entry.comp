#version 450
// compress_entry rotates, transforms and rounds the entry: see kernels.CompressArgs. One workgroup
// per entry. Reads 8*width*ratio bytes, writes 2*dim.
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "rotate.glsl"
#include "../../gpu/args/kv_cache.h"

ARGUMENTS(rmg_compress)
shared float s[SHARED < 4 ? 4 : SHARED];
#include "hadamard.glsl"
#define ROW int // there is one, in s
#define ELEMENT(row, i) s[i]
#include "squares.glsl"
#include "pool.glsl"

void main() {
	const uint dim = uint(args.dim), block = uint(args.first) + gl_WorkGroupID.x;
	pool_entry(push.at[2], push.at[3], InFloats(push.at[4]), block);
	InFloats freqs = InFloats(push.at[5]); // [pairs]
	const uint tail = dim - 2 * uint(args.pairs);
	for (uint i = thread(); i < uint(args.pairs); i += THREADS) {
		precise const float angle = float(block * uint(args.ratio)) * freqs.at[i];
		const vec2 y = turn(vec2(s[tail + 2 * i], s[tail + 2 * i + 1]), cos_sin(angle, 1.0));
		s[tail + 2 * i] = y.x;
		s[tail + 2 * i + 1] = y.y;
	}
	float last = 1;
	if (args.hadamard != 0) {
		hadamard(dim);
		last = args.hadamard_scale;
	} else {
		barrier();
	}
	Shorts cache = Shorts(push.at[1] + 2ul * (args.cache_skip + uint64_t(dim) * gl_WorkGroupID.x)); // [dim]
	for (uint c = thread(); c < dim; c += THREADS) {
		precise const float v = s[c] * last;
		cache.at[c] = uint16_t(half_bits(v));
	}
}
