#version 450
// sum_exact: sums[t] is the exact sum of the terms of token t, or is increased by it, in integers.
// One thread per sum. Reads 4*count bytes per sum, writes 8.
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/elementwise.h"

ARGUMENTS(rmg_sum_exact)

const int64_t NOT_A_NUMBER = int64_t(1l << 63); // of kernels.NotANumber

// multiple returns the bits of a float32, rounded to float16 if that holds it, as a multiple of
// 2^-24; NOT_A_NUMBER if its magnitude is 2^31 or more.
int64_t multiple(uint x) {
	const uint h = half_bits(uintBitsToFloat(x)), a = x & 0x7fffffffu;
	int64_t size;
	if ((h & 0x7c00u) != 0x7c00u) {
		const uint exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
		size = exponent == 0 ? int64_t(mantissa) : int64_t(mantissa | 0x400u) << (exponent - 1);
	} else if (a < 0x4f000000u) {
		size = int64_t((a & 0x7fffffu) | 0x800000u) << ((a >> 23) - 126); // 65520 and more
	} else {
		return NOT_A_NUMBER;
	}
	return (x >> 31) != 0 ? -size : size;
}

void main() {
	const uint col = thread_in_grid(), row = gl_WorkGroupID.y;
	if (col >= args.cols) return;
	Longs sums = Longs(push.at[1] + 8ul * args.cols * row);                   // [cols]
	InUints terms = InUints(push.at[2] + 4ul * args.count * args.cols * row); // [count][cols] float32
	int64_t sum = args.add != 0 ? sums.at[col] : 0l;
	for (uint i = 0; i < args.count && sum != NOT_A_NUMBER; i++) {
		const int64_t x = multiple(terms.at[i * args.cols + col]);
		sum = x == NOT_A_NUMBER ? x : sum + x;
	}
	sums.at[col] = sum;
}
