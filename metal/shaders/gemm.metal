// GEMM: MatMul and MatMulGrouped of many tokens, see kernels.Backend.
//
// Weights are decoded to float32 in threadgroup memory and multiplied with x in
// 8x8 simdgroup matrices that accumulate in float32. float16 matrices would save
// threadgroup memory and bandwidth, but their 11 bits are coarser than most
// quantized weights: logits of prefill would differ from those of decode by more
// than float32 rounding, and so could the tokens.

// Layout of a panel in threadgroup memory: 8x8 matrices of 64 contiguous elements,
// row-major; the RMG_GEMM_COLS / 8 matrices of the same 8 rows are adjacent.
// at8 is the index, in float4, of columns [4*four, 4*four+4) of a row.
inline uint at8(uint row, uint four) {
	return (row / 8 * (RMG_GEMM_COLS / 8) + four / 2) * 16 + row % 8 * 2 + four % 2;
}

// gemm: a threadgroup computes a tile of RMG_GEMM_ROWS rows by RMG_GEMM_TOKENS
// tokens, in steps of RMG_GEMM_COLS columns: each thread decodes one chunk of 16
// weights and loads 8 elements of x, then each simdgroup multiplies 16 rows with
// all tokens. 8x8 matrices without a valid token are skipped.
//
// Grid: x tiles of tokens, so that adjacent threadgroups share weights; y tiles of
// rows; z groups. Out of range, the last row or token is used instead. Reads the
// weights tokens/32 times and x rows/64 times, partly from the caches; writes 4
// bytes per row and token.
template <typename T>
kernel void gemm(constant rmg_matmul &args [[buffer(0)]],
                 device float *out [[buffer(1)]],        // [tokens][out_stride]
                 device const float *x [[buffer(2)]],    // [tokens][x_stride]
                 device const uchar *data [[buffer(3)]], // rows of the view
                 uint3 group [[threadgroup_position_in_grid]],
                 ushort thread_ [[thread_index_in_threadgroup]],
                 ushort simd [[simdgroup_index_in_threadgroup]]) {
	threadgroup float4 ws[RMG_GEMM_ROWS * RMG_GEMM_COLS / 4];   // later the products, [tokens][rows]
	threadgroup float4 xs[RMG_GEMM_TOKENS * RMG_GEMM_COLS / 4];
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint row = group.y * RMG_GEMM_ROWS, token = group.x * RMG_GEMM_TOKENS;
	const uint here = min(tokens - token, uint(RMG_GEMM_TOKENS)); // tokens of this tile
	x += args.x_first + ulong(group.z) * cols;
	out += args.out_first + ulong(group.z) * rows;

	// This thread stages chunk w_chunk of row w_row and 8 columns of token x_token.
	const uint w_row = thread_ / 2, w_chunk = thread_ % 2, x_token = thread_ / 4, x_col = 8 * (thread_ % 4);
	data += args.skip + group.z * args.group_bytes + ulong(min(row + w_row, rows - 1)) * args.row_bytes;
	x += ulong(min(token + x_token, tokens - 1)) * args.x_stride;

	simdgroup_float8x8 acc[2][RMG_GEMM_TOKENS / 8];
	for (ushort r = 0; r < 2; r++) {
		for (ushort t = 0; t < RMG_GEMM_TOKENS / 8; t++) acc[r][t] = make_filled_simdgroup_matrix<float, 8>(0);
	}
	for (uint col = 0; col < cols; col += RMG_GEMM_COLS) {
		float w[16];
		float4 v[2];
		if (!T::PLAIN || col + RMG_GEMM_COLS <= cols) {
			T::decode(data, col / 16 + w_chunk, w);
			device const packed_float4 *p = (device const packed_float4 *)(x + col + x_col);
			v[0] = float4(p[0]);
			v[1] = float4(p[1]);
		} else { // the last columns
			T::decode_to(data, col / 16 + w_chunk, cols, w);
			for (uint k = 0; k < 8; k++) {
				const uint c = col + x_col + k;
				v[k / 4][k % 4] = c < cols ? x[c] : 0;
			}
		}
		threadgroup_barrier(mem_flags::mem_threadgroup); // the previous panels have been read
		for (ushort k = 0; k < 4; k++) ws[at8(w_row, 4 * w_chunk + k)] = float4(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]);
		for (ushort k = 0; k < 2; k++) xs[at8(x_token, x_col / 4 + k)] = v[k];
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (ushort k = 0; k < RMG_GEMM_COLS / 8; k++) {
			simdgroup_float8x8 b[2];
			for (ushort r = 0; r < 2; r++) {
				simdgroup_load(b[r], (threadgroup float *)(ws + at8(16 * simd + 8 * r, 2 * k)), 8, ulong2(0, 0), true);
			}
			for (ushort t = 0; t < RMG_GEMM_TOKENS / 8; t++) {
				if (8 * t >= here) break;
				simdgroup_float8x8 a;
				simdgroup_load(a, (threadgroup float *)(xs + at8(8 * t, 2 * k)), 8);
				for (ushort r = 0; r < 2; r++) simdgroup_multiply_accumulate(acc[r][t], a, b[r], acc[r][t]);
			}
		}
	}

	// A full tile without a scale is stored directly, others through threadgroup memory.
	if (here == RMG_GEMM_TOKENS && row + RMG_GEMM_ROWS <= rows && args.scale == 1) {
		out += ulong(token) * args.out_stride + row + 16 * simd;
		for (ushort r = 0; r < 2; r++) {
			for (ushort t = 0; t < RMG_GEMM_TOKENS / 8; t++) {
				simdgroup_store(acc[r][t], out + 8 * t * ulong(args.out_stride) + 8 * r, args.out_stride);
			}
		}
		return;
	}
	threadgroup float *products = (threadgroup float *)ws;
	threadgroup_barrier(mem_flags::mem_threadgroup); // the last panels have been read
	for (ushort r = 0; r < 2; r++) {
		for (ushort t = 0; t < RMG_GEMM_TOKENS / 8; t++) {
			simdgroup_store(acc[r][t], products + 8 * t * RMG_GEMM_ROWS + 16 * simd + 8 * r, RMG_GEMM_ROWS);
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const uint r = thread_ % RMG_GEMM_ROWS;
	if (row + r >= rows) return;
	for (uint t = thread_ / RMG_GEMM_ROWS; t < here; t += 32 * RMG_GEMM_SIMDGROUPS / RMG_GEMM_ROWS) {
		out[ulong(token + t) * args.out_stride + row + r] = products[t * RMG_GEMM_ROWS + r] * args.scale;
	}
}

#define TILE(T) INSTANCE(gemm_##T, gemm<T>)
EACH_TYPE(TILE)
