// Products of many tokens: MatMul and MatMulGrouped, see kernels.Backend.
//
// Weights are decoded to float32 in threadgroup memory and meet x, float32 too,
// in simdgroup matrices of 8x8 that add up in float32. Matrices of halves would
// save threadgroup memory and its bandwidth, but their 11 bits are worse than the
// rounding of most weights: the products of prefill would differ from those of
// decode by more than the rounding of float32, and so would the tokens.

// In threadgroup memory a matrix of 8 rows and 8 columns is 64 elements in one
// piece, row by row; the RM_TILE_COLS / 8 matrices of 8 rows follow each other.
// at8 is where chunk `four` (of 4 columns) of a row begins, in float4s.
inline uint at8(uint row, uint four) {
	return (row / 8 * (RM_TILE_COLS / 8) + four / 2) * 16 + row % 8 * 2 + four % 2;
}

// mat_mat: a threadgroup computes RM_TILE_ROWS rows for RM_TILE_TOKENS tokens, in
// steps of RM_TILE_COLS columns: each thread decodes one chunk of 16 weights and
// loads 8 elements of x. Then each simdgroup multiplies 16 rows with all tokens;
// matrices of tokens that are not there are left out.
//
// Grid: x are the tiles of tokens, so that neighbours meet the same weights, y
// those of rows, z the groups. Beyond the edges the last row or token stands in.
// Reads the weights tokens/32 times and x rows/64 times, both from the caches
// where they hold them; writes 4 bytes for each row and token.
template <typename T>
kernel void mat_mat(constant rm_matmul &args [[buffer(0)]],
                 device float *out [[buffer(1)]],        // [tokens][out_stride]
                 device const float *x [[buffer(2)]],    // [tokens][x_stride]
                 device const uchar *data [[buffer(3)]], // rows of the view
                 uint3 group [[threadgroup_position_in_grid]],
                 ushort thread_ [[thread_index_in_threadgroup]],
                 ushort simd [[simdgroup_index_in_threadgroup]]) {
	threadgroup float4 ws[RM_TILE_ROWS * RM_TILE_COLS / 4];   // later the products, [tokens][rows]
	threadgroup float4 xs[RM_TILE_TOKENS * RM_TILE_COLS / 4];
	const uint rows = uint(args.rows), cols = uint(args.cols), tokens = uint(args.tokens);
	const uint row = group.y * RM_TILE_ROWS, token = group.x * RM_TILE_TOKENS;
	const uint here = min(tokens - token, uint(RM_TILE_TOKENS)); // tokens of this tile
	x += args.x_first + ulong(group.z) * cols;
	out += args.out_first + ulong(group.z) * rows;

	// What this thread brings: chunk w_chunk of row w_row, 8 columns of token x_token.
	const uint w_row = thread_ / 2, w_chunk = thread_ % 2, x_token = thread_ / 4, x_col = 8 * (thread_ % 4);
	data += args.shift + (ulong(args.first) + ulong(group.z) * rows + min(row + w_row, rows - 1)) * args.row_bytes;
	x += ulong(min(token + x_token, tokens - 1)) * args.x_stride;

	simdgroup_float8x8 acc[2][RM_TILE_TOKENS / 8];
	for (ushort r = 0; r < 2; r++) {
		for (ushort t = 0; t < RM_TILE_TOKENS / 8; t++) acc[r][t] = make_filled_simdgroup_matrix<float, 8>(0);
	}
	for (uint col = 0; col < cols; col += RM_TILE_COLS) {
		float w[16];
		float4 v[2];
		if (!T::PLAIN || col + RM_TILE_COLS <= cols) {
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
		threadgroup_barrier(mem_flags::mem_threadgroup); // the matrices before have been used
		for (ushort k = 0; k < 4; k++) ws[at8(w_row, 4 * w_chunk + k)] = float4(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]);
		for (ushort k = 0; k < 2; k++) xs[at8(x_token, x_col / 4 + k)] = v[k];
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (ushort k = 0; k < RM_TILE_COLS / 8; k++) {
			simdgroup_float8x8 b[2];
			for (ushort r = 0; r < 2; r++) {
				simdgroup_load(b[r], (threadgroup float *)(ws + at8(16 * simd + 8 * r, 2 * k)), 8, ulong2(0, 0), true);
			}
			for (ushort t = 0; t < RM_TILE_TOKENS / 8; t++) {
				if (8 * t >= here) break;
				simdgroup_float8x8 a;
				simdgroup_load(a, (threadgroup float *)(xs + at8(8 * t, 2 * k)), 8);
				for (ushort r = 0; r < 2; r++) simdgroup_multiply_accumulate(acc[r][t], a, b[r], acc[r][t]);
			}
		}
	}

	// A whole tile goes to memory as it is, another one by way of threadgroup memory.
	if (here == RM_TILE_TOKENS && row + RM_TILE_ROWS <= rows) {
		out += ulong(token) * args.out_stride + row + 16 * simd;
		for (ushort r = 0; r < 2; r++) {
			for (ushort t = 0; t < RM_TILE_TOKENS / 8; t++) {
				simdgroup_store(acc[r][t], out + 8 * t * ulong(args.out_stride) + 8 * r, args.out_stride);
			}
		}
		return;
	}
	threadgroup float *products = (threadgroup float *)ws;
	threadgroup_barrier(mem_flags::mem_threadgroup); // the last matrices have been used
	for (ushort r = 0; r < 2; r++) {
		for (ushort t = 0; t < RM_TILE_TOKENS / 8; t++) {
			simdgroup_store(acc[r][t], products + 8 * t * RM_TILE_ROWS + 16 * simd + 8 * r, RM_TILE_ROWS);
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const uint r = thread_ % RM_TILE_ROWS;
	if (row + r >= rows) return;
	for (uint t = thread_ / RM_TILE_ROWS; t < here; t += 32 * RM_TILE_SIMDGROUPS / RM_TILE_ROWS) {
		out[ulong(token + t) * args.out_stride + row + r] = products[t * RM_TILE_ROWS + r];
	}
}

#define TILE(T) INSTANCE(mat_mat_##T, mat_mat<T>)
EACH_TYPE(TILE)
