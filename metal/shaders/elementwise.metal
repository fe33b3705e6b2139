// Elementwise ops: see kernels.Backend. One thread per element; adjacent threads
// take adjacent elements, so accesses are coalesced wherever the slices begin.

// add: out = a + b. Reads 8 bytes per element, writes 4.
kernel void add(constant rmm_elements &args [[buffer(0)]],
                device float *out [[buffer(1)]],     // [n]
                device const float *a [[buffer(2)]], // [n], may be out
                device const float *b [[buffer(3)]], // [n], may be out
                uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = a[i] + b[i];
}

// swiglu_elements: out = swiglu(gate, up). Reads 8 bytes per element, writes 4.
kernel void swiglu_elements(constant rmm_elements &args [[buffer(0)]],
                            device float *out [[buffer(1)]],        // [n]
                            device const float *gate [[buffer(2)]], // [n], may be out
                            device const float *up [[buffer(3)]],   // [n]
                            uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = swiglu(gate[i], up[i], args.clamp);
}

// clear: x = 0. Writes 4 bytes per element.
kernel void clear(constant rmm_elements &args [[buffer(0)]],
                  device float *x [[buffer(1)]], // [n]
                  uint i [[thread_position_in_grid]]) {
	if (i < args.n) x[i] = 0;
}

// to_float16: out = float16(x). Reads 4 bytes per element, writes 2.
kernel void to_float16(constant rmm_elements &args [[buffer(0)]],
                    device ushort *out [[buffer(1)]],   // [first+n]
                    device const uint *x [[buffer(2)]], // [n] float32
                    uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[args.first + i] = float16_bits(x[i]);
}

// from_float16: out = float32(x). Reads 2 bytes per element, writes 4.
kernel void from_float16(constant rmm_elements &args [[buffer(0)]],
                      device uint *out [[buffer(1)]],       // [n] float32
                      device const ushort *x [[buffer(2)]], // [first+n]
                      uint i [[thread_position_in_grid]]) {
	if (i < args.n) out[i] = float32_bits(x[args.first + i]);
}

// sum_slots: out[t] is the sum of the slots of token t, in slot order. Reads
// 4*used bytes per element of out, writes 4. One thread per element of out.
kernel void sum_slots(constant rmm_sum_slots &args [[buffer(0)]],
                      device float *out [[buffer(1)]],         // [rows][cols]
                      device const float *slots [[buffer(2)]], // [rows][used][cols]
                      uint2 at [[thread_position_in_grid]]) {
	if (at.x >= args.cols || at.y >= args.rows) return;
	float sum = 0;
	for (uint i = 0; i < args.used; i++) {
		float v = slots[(ulong(at.y) * args.used + i) * args.cols + at.x];
		if (args.rounded != 0) {
			const ushort h = float16_bits(as_type<uint>(v));
			// A value that overflows float16 is not rounded.
			if ((h & 0x7fff) != 0x7c00) v = as_type<float>(float32_bits(h));
		}
		sum = i == 0 ? v : sum + v; // 0 + -0 would not be -0
	}
	out[ulong(at.y) * args.cols + at.x] = sum;
}

// gather: out[i] = x[rows[i]]. An index out of range is reported as a fault and
// its row of out is not written. Reads 4 bytes per element and writes 4.
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

// copy_columns: out[row][col] = x[row][col] of matrices with rows of other lengths.
// Reads 4 bytes per element and writes 4.
kernel void copy_columns(constant rmm_columns &args [[buffer(0)]],
                         device float *out [[buffer(1)]],     // [rows][out_cols], the last row up to cols
                         device const float *x [[buffer(2)]], // [rows][x_cols], likewise
                         uint2 at [[thread_position_in_grid]]) {
	if (at.x < args.cols && at.y < args.rows) out[ulong(at.y) * args.out_cols + at.x] = x[ulong(at.y) * args.x_cols + at.x];
}
