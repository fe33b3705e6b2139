// GEMV: MatMul and MatMulGrouped of up to RMG_GEMV_TOKENS tokens, see
// kernels.Backend.
//
// Bound by the bytes of the weights, which are read once for all tokens, and by the
// operations per weight: the integers of a chunk are unpacked once for all tokens
// and multiplied with x unscaled; the scale is applied to their sum and the minimum
// to the sum of x.

// load_x loads 16 elements of x, which is only aligned to 4 bytes.
inline void load_x(device const float *x, thread float4 *v) {
	device const packed_float4 *p = (device const packed_float4 *)x;
	for (ushort k = 0; k < 4; k++) v[k] = float4(p[k]);
}

// dot16 is the sum of 16 products.
inline float dot16(thread const float *q, thread const float4 *x) {
	float s = q[0] * x[0].x;
	for (ushort k = 1; k < 16; k++) s = fma(q[k], x[k / 4][k % 4], s);
	return s;
}

inline float sum16(thread const float4 *x) {
	const float4 s = (x[0] + x[1]) + (x[2] + x[3]);
	return (s.x + s.y) + (s.z + s.w);
}

// gemv: a simdgroup, or args.split of them, computes ROWS rows for TOKENS tokens.
// Its lanes stride over the chunks of 16 weights, so a simdgroup reads 512
// contiguous weights of a row at a time; a lane keeps one sum per row and token.
//
// Grid: x rows, RMG_GEMV_SIMDGROUPS * ROWS / split per threadgroup; y tokens;
// z groups. Out of range, the last row or token is computed a second time and not
// written. Reads the weights once per TOKENS tokens, and x, from the caches, once
// per ROWS rows. Writes 4 bytes per row and token.
template <typename T, ushort TOKENS, ushort ROWS>
kernel void gemv(constant rmg_matmul &args [[buffer(0)]],
                 device float *out [[buffer(1)]],        // [tokens][out_stride]
                 device const float *x [[buffer(2)]],    // [tokens][x_stride]
                 device const uchar *data [[buffer(3)]], // rows of the view
                 uint3 group [[threadgroup_position_in_grid]],
                 ushort simd [[simdgroup_index_in_threadgroup]],
                 ushort lane [[thread_index_in_simdgroup]]) {
	threadgroup float sums[RMG_GEMV_SIMDGROUPS][ROWS * TOKENS];
	const uint split = uint(args.split), part = simd % split;
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint row = (group.x * (RMG_GEMV_SIMDGROUPS / split) + simd / split) * ROWS, token = group.y * TOKENS;
	x += args.x_first + ulong(group.z) * cols;
	out += args.out_first + ulong(group.z) * rows;
	data += args.skip + group.z * args.group_bytes;

	ulong row_at[ROWS], x_at[TOKENS];
	for (ushort r = 0; r < ROWS; r++) {
		row_at[r] = ulong(min(row + r, rows - 1)) * args.row_bytes;
	}
	for (ushort t = 0; t < TOKENS; t++) x_at[t] = ulong(min(token + t, tokens - 1)) * args.x_stride;

	float acc[ROWS][TOKENS];
	for (ushort r = 0; r < ROWS; r++) {
		for (ushort t = 0; t < TOKENS; t++) acc[r][t] = 0;
	}
	const uint chunks = cols / 16, begin = 32 * part + lane;
	// i is written as a sum, so that the compiler sees that i % 16 does not change:
	// what depends on the place in a block is then computed before the loop.
	for (uint step = 0; begin + step < chunks; step += 32 * split) {
		const uint i = begin + step;
		float q[ROWS][16], scale[ROWS], least[ROWS];
		for (ushort r = 0; r < ROWS; r++) scale[r] = T::quants(data + row_at[r], i, q[r], least[r]);
		for (ushort t = 0; t < TOKENS; t++) {
			float4 v[4];
			load_x(x + x_at[t] + 16 * i, v);
			const float sum = T::MINIMA ? sum16(v) : 0;
			for (ushort r = 0; r < ROWS; r++) {
				acc[r][t] = fma(scale[r], dot16(q[r], v), acc[r][t]);
				if (T::MINIMA) acc[r][t] = fma(-least[r], sum, acc[r][t]);
			}
		}
	}
	if (T::PLAIN) { // the last columns, if they make no chunk
		for (uint k = 16 * chunks + begin; k < cols; k += 32 * split) {
			for (ushort r = 0; r < ROWS; r++) {
				const float w = T::element(data + row_at[r], k);
				for (ushort t = 0; t < TOKENS; t++) acc[r][t] = fma(w, x[x_at[t] + k], acc[r][t]);
			}
		}
	}

	for (ushort r = 0; r < ROWS; r++) {
		for (ushort t = 0; t < TOKENS; t++) {
			const float sum = simd_sum(acc[r][t]);
			if (lane == 0) sums[simd][r * TOKENS + t] = sum;
		}
	}
	// The parts of a row are added in their order.
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (part == 0 && lane < ROWS * TOKENS) {
		const ushort r = lane / TOKENS, t = lane % TOKENS;
		float sum = sums[simd][lane];
		for (uint p = 1; p < split; p++) sum += sums[simd + p][lane];
		if (row + r < rows && token + t < tokens) out[ulong(token + t) * args.out_stride + row + r] = sum * args.scale;
	}
}

#define VEC(T)                                                                                                         \
	INSTANCE(gemv1_##T, gemv<T, 1, RMG_GEMV_ROWS_ONE>)                                                                     \
	INSTANCE(gemv4_##T, gemv<T, 4, RMG_GEMV_ROWS_MORE>)                                                                    \
	INSTANCE(gemv8_##T, gemv<T, 8, RMG_GEMV_ROWS_MORE>)
EACH_TYPE(VEC)
