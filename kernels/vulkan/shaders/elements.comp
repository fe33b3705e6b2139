#version 450
// The ops of single elements: KERNEL says which. One thread per element; adjacent threads
// take adjacent elements. Reads and writes each operand once.
#include "prelude.glsl"
layout(constant_id = 10) const uint KERNEL = 0;
#include "exact.glsl"
#include "../../gpu/args/elementwise.h"

ARGUMENTS(rmg_elements)

#define ADD 0u
#define SWIGLU 1u
#define CLEAR 2u
#define TO_FLOAT16 3u
#define FROM_FLOAT16 4u
#define ROUND_SUMS 5u

// rounded is the float32 nearest to a multiple of 2^-24, in integers, because the conversion of
// devices may round twice.
uint rounded(int64_t sum) {
	if (sum == 0l) return 0;
	if (sum == int64_t(1l << 63)) return 0x7fc00000u; // kernels.NotANumber
	const uint sign = sum < 0l ? 0x80000000u : 0;
	const uint64_t size = uint64_t(sum < 0l ? -sum : sum);
	const uint upper = uint(size >> 32);
	const int high = upper != 0 ? 32 + findMSB(upper) : findMSB(uint(size)); // the highest bit
	uint mantissa;
	if (high <= 23) {
		mantissa = uint(size) << (23 - high);
	} else {
		const uint shift = uint(high - 23);
		mantissa = uint(size >> shift);
		const uint64_t rest = size & ((1ul << shift) - 1ul), middle = 1ul << (shift - 1);
		if (rest > middle || (rest == middle && (mantissa & 1u) != 0)) mantissa++;
	}
	// The carry of a mantissa of 2^24 increases the exponent.
	return sign | ((uint(high - 24 + 127) << 23) + (mantissa - 0x800000u));
}

void main() {
	const uint i = thread_in_grid();
	if (i >= args.n) return;
	Floats out_ = Floats(push.at[1]); // [n], may be an input
	if (KERNEL == ADD) {
		precise const float sum = Floats(push.at[2]).at[i] + Floats(push.at[3]).at[i];
		out_.at[i] = sum;
	} else if (KERNEL == SWIGLU) {
		out_.at[i] = glu(Floats(push.at[2]).at[i], Floats(push.at[3]).at[i], 1.0, args.clamp);
	} else if (KERNEL == CLEAR) {
		out_.at[i] = 0;
	} else if (KERNEL == TO_FLOAT16) {
		Shorts(push.at[1]).at[args.first + i] = uint16_t(half_bits(InFloats(push.at[2]).at[i]));
	} else if (KERNEL == FROM_FLOAT16) {
		out_.at[i] = half_value(InShorts(push.at[2]).at[args.first + i]);
	} else {
		Uints(push.at[1]).at[i] = rounded(InLongs(push.at[2]).at[i]);
	}
}
