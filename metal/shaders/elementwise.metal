// Elementwise ops: see kernels.Backend. One thread per element; adjacent threads
// take adjacent elements, so accesses are coalesced wherever the slices begin.

// add: out = a + b. Reads 8 bytes per element, writes 4.
kernel void add(constant rmg_elements &args [[buffer(0)]],
                device float *out [[buffer(1)]],     // [n]
                device const float *a [[buffer(2)]], // [n], may be out
                device const float *b [[buffer(3)]], // [n], may be out
                uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = a[i] + b[i];
}

// swiglu_elements: out = swiglu(gate, up). Reads 8 bytes per element, writes 4.
kernel void swiglu_elements(constant rmg_elements &args [[buffer(0)]],
                            device float *out [[buffer(1)]],        // [n]
                            device const float *gate [[buffer(2)]], // [n], may be out
                            device const float *up [[buffer(3)]],   // [n]
                            uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = swiglu(gate[i], up[i], args.clamp);
}

// clear: x = 0. Writes 4 bytes per element.
kernel void clear(constant rmg_elements &args [[buffer(0)]],
                  device float *x [[buffer(1)]], // [n]
                  uint i [[thread_position_in_grid]]) {
	if (i < args.n) x[i] = 0;
}

// to_float16: out = float16(x). Reads 4 bytes per element, writes 2.
kernel void to_float16(constant rmg_elements &args [[buffer(0)]],
                       device ushort *out [[buffer(1)]],   // [first+n]
                       device const uint *x [[buffer(2)]], // [n] float32
                       uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[args.first + i] = float16_bits(x[i]);
}

// from_float16: out = float32(x). Reads 2 bytes per element, writes 4.
kernel void from_float16(constant rmg_elements &args [[buffer(0)]],
                         device uint *out [[buffer(1)]],       // [n] float32
                         device const ushort *x [[buffer(2)]], // [first+n]
                         uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = float32_bits(x[args.first + i]);
}

// sum_slots: out[t] is the sum of the slots of token t, in slot order, and of a row of
// plus. Reads 4*used bytes per element of out, with plus 4 more, writes 4. One thread
// per element of out.
kernel void sum_slots(constant rmg_sum_slots &args [[buffer(0)]],
                      device float *out [[buffer(1)]],         // [rows][cols]
                      device const float *slots [[buffer(2)]], // [rows][used][cols]
                      device const float *plus [[buffer(3)]],  // [rows][cols], with args.plus
                      uint2 at [[thread_position_in_grid]]) {
	if (at.x >= args.cols || at.y >= args.rows) return;
	float sum = 0;
	for (uint i = 0; i < args.used; i++) {
		const float v = slots[(ulong(at.y) * args.used + i) * args.cols + at.x];
		sum = i == 0 ? v : sum + v; // 0 + -0 would not be -0
	}
	const ulong place = ulong(at.y) * args.cols + at.x;
	out[place] = args.plus != 0 ? sum + plus[place] : sum;
}

constant long NOT_A_NUMBER = long(0x8000000000000000); // of kernels.NotANumber

// multiple returns the bits of a float32, rounded to float16 if that holds it, as a
// multiple of 2^-24; NOT_A_NUMBER if its magnitude is 2^31 or more.
inline long multiple(uint x) {
	const ushort h = float16_bits(x);
	const uint a = x & 0x7fffffffu;
	long size;
	if ((h & 0x7c00) != 0x7c00) {
		const uint exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
		size = exponent == 0 ? long(mantissa) : long(mantissa | 0x400u) << (exponent - 1);
	} else if (a < 0x4f000000u) {
		size = long((a & 0x7fffffu) | 0x800000u) << ((a >> 23) - 126); // 65520 and more: the exponent is at least 15
	} else {
		return NOT_A_NUMBER;
	}
	return (x >> 31) != 0 ? -size : size;
}

// sum_exact: sums[t] is the exact sum of the terms of token t, or is increased by it. In
// integers, because devices have no doubles. Reads 4*count bytes per sum, writes 8. One
// thread per sum.
kernel void sum_exact(constant rmg_sum_exact &args [[buffer(0)]],
                      device long *sums [[buffer(1)]],        // [rows][cols]
                      device const uint *terms [[buffer(2)]], // [rows][count][cols] float32
                      uint2 at [[thread_position_in_grid]]) {
	if (at.x >= args.cols || at.y >= args.rows) return;
	const ulong place = ulong(at.y) * args.cols + at.x;
	long sum = args.add != 0 ? sums[place] : 0;
	for (uint i = 0; i < args.count && sum != NOT_A_NUMBER; i++) {
		const long x = multiple(terms[(ulong(at.y) * args.count + i) * args.cols + at.x]);
		sum = x == NOT_A_NUMBER ? x : sum + x;
	}
	sums[place] = sum;
}

// round_sums: out is the float32 nearest to a multiple of 2^-24. In integers, because the
// conversion of devices may round twice. Reads 8 bytes per element, writes 4.
kernel void round_sums(constant rmg_elements &args [[buffer(0)]],
                       device uint *out [[buffer(1)]],        // [n] float32
                       device const long *sums [[buffer(2)]], // [n]
                       uint i [[thread_position_in_grid]]) {
	if (i >= args.n) return;
	const long sum = sums[i];
	if (sum == 0 || sum == NOT_A_NUMBER) {
		out[i] = sum == 0 ? 0 : 0x7fc00000u;
		return;
	}
	const uint sign = sum < 0 ? 0x80000000u : 0;
	const ulong size = ulong(sum < 0 ? -sum : sum);
	const uint upper = uint(size >> 32);
	const int high = 63 - int(upper != 0 ? clz(upper) : 32 + clz(uint(size))); // the highest bit
	uint mantissa;
	if (high <= 23) {
		mantissa = uint(size) << (23 - high);
	} else {
		const uint shift = high - 23;
		mantissa = uint(size >> shift);
		const ulong rest = size & ((ulong(1) << shift) - 1), middle = ulong(1) << (shift - 1);
		if (rest > middle || (rest == middle && (mantissa & 1u) != 0)) mantissa++;
	}
	// The carry of a mantissa of 2^24 increases the exponent.
	out[i] = sign | ((uint(high - 24 + 127) << 23) + (mantissa - 0x800000u));
}

// gather: out[i] = x[rows[i]]. An index out of range is reported as a fault and
// its row of out is not written. Reads 4 bytes per element and writes 4.
kernel void gather(constant rmg_gather &args [[buffer(0)]],
                   device float *out [[buffer(1)]],         // [grid.y][cols]
                   device const float *x [[buffer(2)]],     // [have][cols]
                   device const int *rows [[buffer(3)]],    // [grid.y]
                   device atomic_uint *fault [[buffer(4)]],
                   uint2 at [[thread_position_in_grid]]) {
	const int row = rows[at.y];
	if (row < 0 || uint(row) >= args.have) {
		if (at.x == 0) report(fault, FAULT_ROW);
		return;
	}
	if (at.x < args.cols) out[ulong(at.y) * args.cols + at.x] = x[ulong(row) * args.cols + at.x];
}

// copy_columns: out[row][col] = x[row][col] of matrices with rows of other lengths.
// Reads 4 bytes per element and writes 4.
kernel void copy_columns(constant rmg_columns &args [[buffer(0)]],
                         device float *out [[buffer(1)]],     // [rows][out_cols], the last row up to cols
                         device const float *x [[buffer(2)]], // [rows][x_cols], likewise
                         uint2 at [[thread_position_in_grid]]) {
	if (at.x < args.cols && at.y < args.rows) out[ulong(at.y) * args.out_cols + at.x] = x[ulong(at.y) * args.x_cols + at.x];
}
