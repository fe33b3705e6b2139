// Ops over elements: see kernels.Backend.

// add: out = a + b. Args n.
kernel void add(constant rm_elements &args [[buffer(0)]],
                device float *out [[buffer(1)]],     // [n]
                device const float *a [[buffer(2)]], // [n], may be out
                device const float *b [[buffer(3)]], // [n], may be out
                uint i [[thread_position_in_grid]]) {
	if (i < uint(args.n)) out[i] = a[i] + b[i];
}
