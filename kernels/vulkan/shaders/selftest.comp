#version 450
// selftest tries what the kernels rely on. The device runs it when it is opened, with
// two simdgroups, and compares words with what they must be: see selftest.go.
#include "prelude.glsl"
#include "lanes.glsl"

struct selftest {
	float one; // 1, so that compilers do not know it
};
ARGUMENTS(selftest)

void main() {
	Uints out_ = Uints(push.at[1]); // [16 words][64 threads]
	const uint t = thread();
	const float one = args.one;
	const float x = one + 1.0 / 4096.0;
	precise const float product = x * x;
	precise const float split = product - (one + 1.0 / 2048.0);
	// Each number is another power of two, or rounds differently in another order.
	const float v = one / float(3 + 2 * t);
	uint word[16];
	word[0] = floatBitsToUint(fma(x, x, -(one + 1.0 / 2048.0))); // 2^-24 if fused
	word[1] = floatBitsToUint(split);                            // 0 unless contracted
	word[2] = floatBitsToUint(one * uintBitsToFloat(5u));        // a subnormal
	word[3] = floatBitsToUint(uintBitsToFloat(0x00800000u) * (0.5 * one));
	word[4] = floatBitsToUint(v);
	word[5] = floatBitsToUint(sqrt(v));
	word[6] = floatBitsToUint(lanes_sum(v));
	word[7] = floatBitsToUint(lanes_sum(v, 16));
	word[8] = lanes_sum(t);
	word[9] = lanes_before(t);
	word[10] = floatBitsToUint(lanes_max(v));
	word[11] = lanes_from(t, 31u - lane());
	word[12] = lanes_xor(t, 5u);
	word[13] = lanes_any(t == 40u) ? 1u : 0u;
	word[14] = floatBitsToUint(group_sum(v));
	word[15] = lane() | simdgroup() << 8 | lanes_max(t) << 16 | lanes_min(t) << 24;
	for (uint i = 0; i < 16; i++) out_.at[64 * i + t] = word[i];
}
