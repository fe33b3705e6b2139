#version 450
// compress_latent stores the entry as it is: see kernels.CompressArgs. One workgroup per entry.
// Reads 8*width*ratio bytes, writes 4*dim.
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "../../gpu/args/kv_cache.h"

ARGUMENTS(rmg_compress)
shared float s[SHARED < 4 ? 4 : SHARED];
#define ROW int // there is one, in s
#define ELEMENT(row, i) s[i]
#include "squares.glsl"
#include "pool.glsl"

void main() {
	const uint dim = uint(args.dim);
	pool_entry(push.at[2], push.at[3], InFloats(push.at[4]), uint(args.first) + gl_WorkGroupID.x);
	Floats latent = Floats(push.at[1] + 4ul * dim * gl_WorkGroupID.x); // [dim]
	for (uint c = thread(); c < dim; c += THREADS) latent.at[c] = s[c];
}
