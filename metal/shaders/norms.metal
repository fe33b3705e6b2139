// RMSNorm, LayerNorm, RoPE and Hadamard: see kernels.Backend.

// norm_row is RMSNorm of one row of n elements of type V, float4 or float.
template <typename V>
inline void norm_row(constant rmg_rms_norm &args, device float *out, device const float *x, device const float *weight,
                     threadgroup float *partial, uint thread_index, uint threads, uint lane, uint simdgroup) {
	const uint n = uint(args.cols) * sizeof(float) / sizeof(V);
	device const V *in = (device const V *)x;
	float sum = 0;
	for (uint i = thread_index; i < n; i += threads) {
		const V v = in[i];
		sum += square(v);
	}
	sum = group_sum(sum, partial, lane, simdgroup, threads / 32);
	const float scale = 1.0f / precise::sqrt(sum / float(args.cols) + args.eps);
	// A thread reads again only elements that it writes itself, so out may be x.
	for (uint i = thread_index; i < n; i += threads) {
		V v = in[i] * scale;
		if (args.weighted) v *= ((device const V *)weight)[i];
		((device V *)out)[i] = v;
	}
}

// rms_norm: out = x / sqrt(mean(x^2) + eps) * weight. One threadgroup per row. Its
// threads stride over the row twice, the second time from the cache. Reads 4
// bytes per element (and the weight), writes 4.
kernel void rms_norm(constant rmg_rms_norm &args [[buffer(0)]],
                     device float *out [[buffer(1)]],          // [rows][cols], may be x
                     device const float *x [[buffer(2)]],      // [rows][cols]
                     device const float *weight [[buffer(3)]], // [cols], or none
                     uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float partial[32];
	out += ulong(row) * args.cols;
	x += ulong(row) * args.cols;
	if (args.vectors) {
		norm_row<float4>(args, out, x, weight, partial, t, threads, lane, simdgroup);
	} else {
		norm_row<float>(args, out, x, weight, partial, t, threads, lane, simdgroup);
	}
}

// layer_norm: out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias. One
// threadgroup per row. Its threads stride over the row three times, the last two from
// the cache. Reads 4 bytes per element (and weight and bias), writes 4.
kernel void layer_norm(constant rmg_layer_norm &args [[buffer(0)]],
                       device float *out [[buffer(1)]],          // [rows][cols], may be x
                       device const float *x [[buffer(2)]],      // [rows][cols]
                       device const float *weight [[buffer(3)]], // [cols]
                       device const float *bias [[buffer(4)]],   // [cols]
                       uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                       uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float sums[32], spreads[32];
	const uint n = uint(args.cols);
	out += ulong(row) * n;
	x += ulong(row) * n;
	float sum = 0, spread = 0;
	for (uint i = t; i < n; i += threads) sum += x[i];
	const float mean = group_sum(sum, sums, lane, simdgroup, threads / 32) / float(n);
	for (uint i = t; i < n; i += threads) spread = fma(x[i] - mean, x[i] - mean, spread);
	const float scale = 1.0f / precise::sqrt(group_sum(spread, spreads, lane, simdgroup, threads / 32) / float(n) + args.eps);
	// A thread reads again only elements that it writes itself, so out may be x.
	for (uint i = t; i < n; i += threads) out[i] = fma((x[i] - mean) * scale, weight[i], bias[i]);
}

// rope rotates RotDim elements of each of RMG_ROPE_HEADS heads of one row. The cosines and sines
// of 64 pairs at a time are computed once for all of these heads. Reads and
// writes 8 bytes per pair. Grid: [blocks of heads][rows].
kernel void rope(constant rmg_rope &args [[buffer(0)]],
                 device float *x [[buffer(1)]],           // [rows][heads][head_dim]
                 device const int *pos [[buffer(2)]],     // [rows]
                 device const float *freqs [[buffer(3)]], // [pairs], radians per position
                 uint2 at [[threadgroup_position_in_grid]], uint2 tid [[thread_position_in_threadgroup]],
                 uint2 size [[threads_per_threadgroup]]) {
	threadgroup float2 angles[64];
	const uint t = tid.x, threads = size.x;
	const uint first = at.x * RMG_ROPE_HEADS, heads = min(uint(RMG_ROPE_HEADS), uint(args.heads) - first);
	x += (ulong(at.y) * args.heads + first) * args.head_dim + args.first;
	const float p = float(pos[at.y]);
	for (uint begin = 0; begin < uint(args.pairs); begin += 64) {
		const uint n = min(64u, uint(args.pairs) - begin);
		for (uint i = t; i < n; i += threads) {
			float2 angle = args.magnitude * cos_sin(p * freqs[begin + i]);
			if (args.inverse) angle.y = -angle.y;
			angles[i] = angle;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = t; i < heads * n; i += threads) {
			device float *pair = x + ulong(i / n) * args.head_dim + uint(args.step) * (begin + i % n);
			const float2 y = turn(float2(pair[0], pair[args.apart]), angles[i % n]);
			pair[0] = y.x;
			pair[args.apart] = y.y;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
}

// norm_rope is RMSNorm of one head, its rotation, the Hadamard transform, and its rounding to
// float16 in a ring, each if it is wanted. One threadgroup per head keeps it in threadgroup
// memory; each head computes the sines of its pairs itself. Reads and writes 4 bytes per
// element (and reads the weight), and writes 2 in the ring. Grid: [heads][rows].
kernel void norm_rope(constant rmg_norm_rope &args [[buffer(0)]],
                      device float *x [[buffer(1)]],            // [rows][heads][head_dim]
                      device const int *pos [[buffer(2)]],      // [rows]
                      device const float *freqs [[buffer(3)]],  // [pairs], radians per position
                      device const float *weight [[buffer(4)]], // [head_dim], or none
                      device ushort *ring [[buffer(5)]],        // [ring_rows][head_dim], or none
                      threadgroup float *s [[threadgroup(0)]],  // [head_dim]
                      uint2 at [[threadgroup_position_in_grid]], uint2 tid [[thread_position_in_threadgroup]],
                      uint2 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float partial[32];
	const uint t = tid.x, threads = size.x, dim = uint(args.head_dim);
	x += (ulong(at.y) * args.heads + at.x) * dim;
	float scale = 1.0f;
	if (args.normed) {
		float sum = 0;
		if (args.vectors) {
			for (uint i = t; i < dim / 4; i += threads) sum += square(((device const float4 *)x)[i]);
		} else {
			for (uint i = t; i < dim; i += threads) sum += square(x[i]);
		}
		sum = group_sum(sum, partial, lane, simdgroup, threads / 32);
		scale = 1.0f / precise::sqrt(sum / float(dim) + args.eps);
	}
	for (uint i = t; i < dim; i += threads) {
		float v = x[i] * scale;
		if (args.weighted) v *= weight[i];
		s[i] = v;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const float p = float(pos[at.y]);
	for (uint i = t; i < uint(args.pairs); i += threads) {
		float2 angle = args.magnitude * cos_sin(p * freqs[i]);
		if (args.inverse) angle.y = -angle.y;
		threadgroup float *pair = s + uint(args.first) + uint(args.step) * i;
		const float2 y = turn(float2(pair[0], pair[args.apart]), angle);
		pair[0] = y.x;
		pair[args.apart] = y.y;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (args.hadamard) hadamard(s, dim, t, threads);
	if (args.ring_rows > 0) ring += args.ring_skip + ulong((uint(args.ring_pos) + at.y) % uint(args.ring_rows)) * dim;
	for (uint i = t; i < dim; i += threads) {
		const float v = args.hadamard ? s[i] * args.hadamard_scale : s[i];
		x[i] = v;
		if (args.ring_rows > 0) ring[i] = float16_bits(as_type<uint>(v));
	}
}

// hadamard_block transforms blocks of dim elements in threadgroup memory and
// scales them. One threadgroup per block. Reads and writes 4 bytes per element.
kernel void hadamard_block(constant rmg_hadamard &args [[buffer(0)]],
                           device float *x [[buffer(1)]], // [blocks][dim]
                           threadgroup float *s [[threadgroup(0)]], // [dim]
                           uint block [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                           uint threads [[threads_per_threadgroup]]) {
	const uint dim = uint(args.dim);
	x += ulong(block) * dim;
	for (uint i = t; i < dim; i += threads) s[i] = x[i];
	hadamard(s, dim, t, threads);
	for (uint i = t; i < dim; i += threads) x[i] = s[i] * args.scale;
}

// hadamard_step is one step of a transform that is too long for threadgroup
// memory: sums and differences of elements `step` apart, scaled. One thread a
// pair. Reads and writes 8 bytes per pair.
kernel void hadamard_step(constant rmg_hadamard &args [[buffer(0)]],
                          device float *x [[buffer(1)]], // [n*2]
                          uint i [[thread_position_in_grid]]) {
	if (i >= uint(args.n)) return;
	const uint step = uint(args.step), at = (i & ~(step - 1)) * 2 + (i & (step - 1));
	const float a = x[at], b = x[at + step];
	x[at] = (a + b) * args.scale;
	x[at + step] = (a - b) * args.scale;
}
