#version 450
// pack quantises activations to 15 bits, as rm_kernels.quantise of the CPU does: a thread
// for each group of 32 values. Reads 4 bytes and writes 2.5 for each value.
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/packed.h"

ARGUMENTS(rmg_pack)

void main() {
	const uint g = thread_in_grid();
	if (g >= args.groups) return;
	InFloats x = InFloats(after(push.at[2], 128ul * g)); // [32]
	float v[32];
	uint largest = 0;
	for (uint i = 0; i < 32; i++) {
		v[i] = x.at[i];
		largest = max(largest, floatBitsToUint(v[i]) & 0x7fffffffu);
	}
	// rm_act_scale
	float d = 0, inverse = 0;
	if (largest >= 0x7f800000u) {
		d = uintBitsToFloat(0x7fc00000u);
	} else if (uintBitsToFloat(largest) >= 7.7037197787136e-34) { // 2^-110
		inverse = quotient(16256.0, uintBitsToFloat(largest));
		d = quotient(uintBitsToFloat(largest), 16256.0);
	}
	const uint64_t to = after(push.at[1], uint64_t(RMG_PACKED_GROUP) * g);
	Uints words = Uints(to);
	int sums[2] = {0, 0};
	for (uint w = 0; w < 8; w++) {
		uint q = 0, r = 0;
		for (uint k = 0; k < 4; k++) {
			// Adding 1.5*2^23 leaves the value, rounded to nearest even, in the low bits.
			precise float scaled = v[4 * w + k] * inverse;
			if (largest >= 0x7f800000u) scaled = 0;
			precise const float shifted = scaled + 12582912.0;
			const int n = int(floatBitsToUint(shifted) - 0x4b400000u);
			const int upper = (n + 64) >> 7;
			q |= uint(upper & 255) << (8 * k);
			r |= uint((n - 128 * upper) & 255) << (8 * k);
			sums[w / 4] += n;
		}
		words.at[w] = q;
		words.at[8 + w] = r;
	}
	Floats rest = Floats(after(to, 64));
	precise const float all = d * float(sums[0] + sums[1]), first = d * float(sums[0]), last = d * float(sums[1]);
	rest.at[0] = d;
	rest.at[1] = all;
	rest.at[2] = first;
	rest.at[3] = last;
}
