#version 450
// hadamard_block transforms blocks of dim elements in shared memory and scales them. One
// workgroup per block. Reads and writes 4 bytes per element.
#include "prelude.glsl"
#include "../../gpu/args/norms.h"

ARGUMENTS(rmg_hadamard)
shared float s[SHARED < 4 ? 4 : SHARED];
#include "hadamard.glsl"

void main() {
	const uint dim = uint(args.dim);
	Floats x = Floats(push.at[1] + 4ul * dim * gl_WorkGroupID.x); // [dim]
	for (uint i = gl_LocalInvocationIndex; i < dim; i += THREADS) s[i] = x.at[i];
	hadamard(dim);
	for (uint i = gl_LocalInvocationIndex; i < dim; i += THREADS) {
		precise const float scaled = s[i] * args.scale;
		x.at[i] = scaled;
	}
}
