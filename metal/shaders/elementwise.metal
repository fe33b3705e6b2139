// Ops over elements: see kernels.Backend. A thread has one element, and
// neighbours have neighbouring elements, so reads and writes are coalesced
// wherever the slices begin.

// add: out = a + b. Reads 8 bytes an element, writes 4.
kernel void add(constant rmm_elements &args [[buffer(0)]],
                device float *out [[buffer(1)]],     // [n]
                device const float *a [[buffer(2)]], // [n], may be out
                device const float *b [[buffer(3)]], // [n], may be out
                uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = a[i] + b[i];
}

// swiglu_elements: out = swiglu(gate, up). Reads 8 bytes an element, writes 4.
kernel void swiglu_elements(constant rmm_elements &args [[buffer(0)]],
                            device float *out [[buffer(1)]],        // [n]
                            device const float *gate [[buffer(2)]], // [n], may be out
                            device const float *up [[buffer(3)]],   // [n]
                            uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = swiglu(gate[i], up[i], args.clamp);
}

// clear: x = 0. Writes 4 bytes an element.
kernel void clear(constant rmm_elements &args [[buffer(0)]],
                  device float *x [[buffer(1)]], // [n]
                  uint i [[thread_position_in_grid]]) {
	if (i < args.n) x[i] = 0;
}

// half_bits rounds a float32, given by its bits, to half: to nearest, ties to
// even, beyond the largest half to infinity; NaNs become quiet. It is done on
// integers, since devices differ in what they do with subnormals and NaNs.
inline ushort half_bits(uint x) {
	const uint sign = x >> 16 & 0x8000u;
	uint a = x & 0x7fffffffu;
	if (a > 0x7f800000u) return ushort(sign | 0x7e00u | (a >> 13 & 0x3ffu));
	if (a >= 0x477ff000u) return ushort(sign | 0x7c00u); // 65520 and more
	if (a >= 0x38800000u) {                              // 2^-14: a normal half
		a += 0xfffu + (a >> 13 & 1u);
		return ushort(sign | (a - 0x38000000u) >> 13);
	}
	if (a < 0x33000000u) return ushort(sign); // less than half the smallest
	const uint mantissa = (a & 0x7fffffu) | 0x800000u;
	const uint shift = 126u - (a >> 23); // 14..24
	uint h = mantissa >> shift;
	const uint rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
	if (rest > middle || (rest == middle && (h & 1u) != 0)) h++;
	return ushort(sign | h);
}

// float_bits widens a half to the bits of a float32, exactly; NaNs become quiet.
inline uint float_bits(ushort x) {
	const uint sign = uint(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, mantissa = x & 0x3ff;
	if (exponent == 0x1f) return mantissa == 0 ? sign | 0x7f800000u : sign | 0x7fc00000u | mantissa << 13;
	// A subnormal half is a whole number of 2^-24, a normal float32.
	if (exponent == 0) return sign | as_type<uint>(float(mantissa) * 0x1p-24f);
	return sign | ((exponent + 112) << 23 | mantissa << 13);
}

// to_float16: out = x in half. Reads 4 bytes an element, writes 2.
kernel void to_float16(constant rmm_elements &args [[buffer(0)]],
                    device ushort *out [[buffer(1)]],   // [first+n]
                    device const uint *x [[buffer(2)]], // [n] float32
                    uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[args.first + i] = half_bits(x[i]);
}

// from_float16: out = x in float32. Reads 2 bytes an element, writes 4.
kernel void from_float16(constant rmm_elements &args [[buffer(0)]],
                      device uint *out [[buffer(1)]],       // [n] float32
                      device const ushort *x [[buffer(2)]], // [first+n]
                      uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = float_bits(x[args.first + i]);
}

// sum_slots: out[t] is the sum of the slots of token t in their order. Reads
// 4*used bytes an element of out, writes 4. Thread (c, t) has one element.
kernel void sum_slots(constant rmm_sum_slots &args [[buffer(0)]],
                      device float *out [[buffer(1)]],         // [rows][cols]
                      device const float *slots [[buffer(2)]], // [rows][used][cols]
                      uint2 at [[thread_position_in_grid]]) {
	if (at.x >= args.cols || at.y >= args.rows) return;
	float sum = 0;
	for (uint i = 0; i < args.used; i++) {
		float v = slots[(ulong(at.y) * args.used + i) * args.cols + at.x];
		if (args.rounded != 0) {
			const ushort h = half_bits(as_type<uint>(v));
			// What would become infinite stays as it is.
			if ((h & 0x7fff) != 0x7c00) v = as_type<float>(float_bits(h));
		}
		sum = i == 0 ? v : sum + v; // 0 + -0 would not be -0
	}
	out[ulong(at.y) * args.cols + at.x] = sum;
}

// gather: out[i] = x[rows[i]]. A number that is no row of x is reported; its row
// of out stays as it is. Reads 4 bytes an element and writes 4.
kernel void gather(constant rmm_gather &args [[buffer(0)]],
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
