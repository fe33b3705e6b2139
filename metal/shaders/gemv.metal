// GEMV: MatMul and MatMulGrouped of up to RMG_GEMV_TOKENS tokens, see
// kernels.Backend. For one token several products of MatMul are one dispatch, which may be that
// of an RMSNorm of x too.
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

// normed is how x is normed: by scale and then by weight, or none for x as it is.
struct normed {
	float scale;
	device const float *weight; // [cols]
};

// load_x loads 16 elements of x from i on.
inline void load_x(device const float *x, uint i, normed by, thread float4 *v) {
	load_x(x + i, v);
	if (by.weight == nullptr) return;
	float4 w[4];
	load_x(by.weight + i, w);
	for (ushort k = 0; k < 4; k++) v[k] = v[k] * by.scale * w[k];
}

// row_sums: a simdgroup, or `split` of them, computes ROWS rows for TOKENS tokens. Its
// lanes stride over the chunks of 16 weights, so a simdgroup reads 512 contiguous
// weights of a row at a time; a lane keeps one sum per row and token. Lane
// r*TOKENS+t of the first of the simdgroups returns the sum of row r and token t.
// Out of range, the last row is computed a second time. All threads of the
// threadgroup call it, because the parts of a row are added after a barrier.
template <typename T, ushort TOKENS, ushort ROWS>
inline float row_sums(device const uchar *data, ulong row_bytes, uint row, uint rows, uint cols, device const float *x,
                      thread const ulong (&x_at)[TOKENS], normed by, uint split, threadgroup float *sums, ushort simd, ushort lane) {
	ulong row_at[ROWS];
	for (ushort r = 0; r < ROWS; r++) row_at[r] = ulong(min(row + r, rows - 1)) * row_bytes;

	float acc[ROWS][TOKENS];
	for (ushort r = 0; r < ROWS; r++) {
		for (ushort t = 0; t < TOKENS; t++) acc[r][t] = 0;
	}
	const uint part = simd % split, chunks = cols / 16, begin = 32 * part + lane;
	// i is written as a sum, so that the compiler sees that i % 16 does not change:
	// what depends on the place in a block is then computed before the loop.
	for (uint step = 0; begin + step < chunks; step += 32 * split) {
		const uint i = begin + step;
		float q[ROWS][16], scale[ROWS], least[ROWS];
		for (ushort r = 0; r < ROWS; r++) scale[r] = T::quants(data + row_at[r], i, q[r], least[r]);
		for (ushort t = 0; t < TOKENS; t++) {
			float4 v[4];
			load_x(x + x_at[t], 16 * i, by, v);
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
				for (ushort t = 0; t < TOKENS; t++) {
					float v = x[x_at[t] + k];
					if (by.weight != nullptr) v = v * by.scale * by.weight[k];
					acc[r][t] = fma(w, v, acc[r][t]);
				}
			}
		}
	}

	for (ushort r = 0; r < ROWS; r++) {
		for (ushort t = 0; t < TOKENS; t++) {
			const float sum = simd_sum(acc[r][t]);
			if (lane == 0) sums[simd * (ROWS * TOKENS) + r * TOKENS + t] = sum;
		}
	}
	// The parts of a row are added in their order.
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (part != 0 || lane >= ROWS * TOKENS) return 0;
	float sum = sums[simd * (ROWS * TOKENS) + lane];
	for (uint p = 1; p < split; p++) sum += sums[(simd + p) * (ROWS * TOKENS) + lane];
	return sum;
}

// gemv: see row_sums.
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
	threadgroup float sums[RMG_GEMV_SIMDGROUPS * ROWS * TOKENS];
	const uint split = uint(args.split), rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint row = (group.x * (RMG_GEMV_SIMDGROUPS / split) + simd / split) * ROWS, token = group.y * TOKENS;
	x += args.x_first + ulong(group.z) * cols;
	out += args.out_first + ulong(group.z) * rows;
	data += args.skip + group.z * args.group_bytes;
	ulong x_at[TOKENS];
	for (ushort t = 0; t < TOKENS; t++) x_at[t] = ulong(min(token + t, tokens - 1)) * args.x_stride;
	const float sum = row_sums<T, TOKENS, ROWS>(data, args.row_bytes, row, rows, cols, x, x_at, normed{1, nullptr}, split, sums, simd, lane);
	if (simd % split == 0 && lane < ROWS * TOKENS) {
		const ushort r = lane / TOKENS, t = lane % TOKENS;
		if (row + r < rows && token + t < tokens) out[ulong(token + t) * args.out_stride + row + r] = sum * args.scale;
	}
}

#define VEC(T)                                                                                                         \
	INSTANCE(gemv1_##T, gemv<T, 1, RMG_GEMV_ROWS_ONE>)                                                                     \
	INSTANCE(gemv4_##T, gemv<T, 4, RMG_GEMV_ROWS_MORE>)                                                                    \
	INSTANCE(gemv8_##T, gemv<T, 8, RMG_GEMV_ROWS_MORE>)
EACH_TYPE(VEC)

// one_of is k of seven. An array of the pointers would be in the memory of the thread.
template <typename P> inline P one_of(uint k, P a, P b, P c, P d, P e, P f, P g) {
	switch (k) {
	case 0: return a;
	case 1: return b;
	case 2: return c;
	case 3: return d;
	case 4: return e;
	case 5: return f;
	}
	return g;
}

// gemv_many: products of one row of x with up to seven matrices of one height or of
// several, of one type, or with MIXED of two. A matrix has the sums that it has in a
// dispatch of its own. Of a SwiGLU the threadgroup computes some rows of gate and the same
// of up, one after the other.
//
// Grid: the threadgroups of one matrix after those of another, as gemv has them for one
// token. The matrix and its type are the same for a threadgroup. The registers are those of
// the larger of the two decoders, because only one is in use at a time: four rows of 16
// numbers either way, so that a second type costs no occupancy. Reads the weights once,
// and x, from the caches, once per RMG_GEMV_ROWS_ONE rows. Writes 4 bytes per row.
//
// With a norm each simdgroup computes the scale of x itself, without a barrier, and reads x
// once more and the weights of the norm as often as x: 8 KB for 1024 columns.
template <typename A, typename B, bool MIXED>
kernel void gemv_many(constant rmg_gemv_many &args [[buffer(0)]],
                      device const float *x [[buffer(1)]],     // [cols]
                      device float *out0 [[buffer(2)]],        // [rows[0]]
                      device float *out1 [[buffer(3)]],
                      device float *out2 [[buffer(4)]],
                      device float *out3 [[buffer(5)]],
                      device float *out4 [[buffer(6)]],
                      device float *out5 [[buffer(7)]],
                      device float *out6 [[buffer(8)]],
                      device const uchar *data0 [[buffer(9)]], // a matrix, after shift[0] bytes
                      device const uchar *data1 [[buffer(10)]],
                      device const uchar *data2 [[buffer(11)]],
                      device const uchar *data3 [[buffer(12)]],
                      device const uchar *data4 [[buffer(13)]],
                      device const uchar *data5 [[buffer(14)]],
                      device const uchar *data6 [[buffer(15)]], // or the weights of the norm, [cols]
                      uint group [[threadgroup_position_in_grid]],
                      ushort simd [[simdgroup_index_in_threadgroup]],
                      ushort lane [[thread_index_in_simdgroup]]) {
	constexpr ushort ROWS = RMG_GEMV_ROWS_ONE;
	threadgroup float sums[RMG_GEMV_SIMDGROUPS * ROWS];
	uint k = 0;
	while (k + 1 < args.count && group >= args.first[k + 1]) k++;
	const uint split = args.split[k], rows = args.rows[k];
	const uint row = ((group - args.first[k]) * (RMG_GEMV_SIMDGROUPS / split) + simd / split) * ROWS;
	const bool gate = (args.kind[k] & RMG_MANY_GATE) != 0;
	const ulong x_at[1] = {0};
	normed by = {1, nullptr};
	if (args.norm != 0) {
		by.scale = norm_scale((device const float4 *)x, args.cols / 4, args.eps, args.norm, lane);
		by.weight = (device const float *)data6;
	}
	float y[2] = {0, 0}; // the product, and that of up
	for (uint i = 0; i <= (gate ? 1u : 0u); i++) {
		const uint m = k + i;
		device const uchar *data = one_of(m, data0, data1, data2, data3, data4, data5, data6) + args.shift[m];
		if (i > 0) threadgroup_barrier(mem_flags::mem_threadgroup); // sums have been read
		if (MIXED && (args.kind[m] & RMG_MANY_SECOND) != 0) {
			y[i] = row_sums<B, 1, ROWS>(data, args.row_bytes[m], row, rows, args.cols, x, x_at, by, split, sums, simd, lane);
		} else {
			y[i] = row_sums<A, 1, ROWS>(data, args.row_bytes[m], row, rows, args.cols, x, x_at, by, split, sums, simd, lane);
		}
		y[i] *= args.scale[m];
	}
	if (simd % split == 0 && lane < ROWS && row + lane < rows) {
		device float *out = one_of(k, out0, out1, out2, out3, out4, out5, out6);
		out[row + lane] = gate ? swiglu(y[0], y[1], args.clamp) : y[0];
	}
}

#define MANY(T) INSTANCE(gemv_many_##T, gemv_many<T, T, false>)
EACH_TYPE(MANY)
#define MIXED(A, B) INSTANCE(gemv_many_##A##_##B, gemv_many<A, B, true>)
MIXED(q8_0, f16)
MIXED(q8_0, f32)
MIXED(q8_0, bf16)
