// IndexTopK: see kernels.IndexArgs. One kernel scores all entries visible to a
// token, a second one selects the top k of the scores exactly.

// seen is the number of entries visible to a token.
inline uint seen(constant rmg_index &args, uint row) {
	return min((uint(args.pos) + row + 1) / uint(args.ratio), uint(args.entries));
}

// index_scores: one thread per entry, for any number of heads and any dim. Grid:
// [entries][rows].
kernel void index_scores(constant rmg_index &args [[buffer(0)]],
                         device float *scores [[buffer(1)]],        // [rows][most]
                         device const float *q [[buffer(2)]],       // [rows][heads][dim]
                         device const float *weights [[buffer(3)]], // [rows][heads]
                         device const half *cache [[buffer(4)]],    // [entries][dim]
                         uint2 at [[thread_position_in_grid]]) {
	const uint n = seen(args, at.y), heads = uint(args.heads), dim = uint(args.dim);
	if (at.x >= n || n <= uint(args.top_k)) return;
	q += ulong(at.y) * heads * dim;
	weights += at.y * heads;
	device const half *key = cache + args.cache_skip + ulong(at.x) * dim;
	float score = 0;
	for (uint h = 0; h < heads; h++) {
		float s = 0;
		for (uint d = 0; d < dim; d++) s = fma(q[h * dim + d], float(key[d]), s);
		score = fma(weights[h] * args.scale, max(0.0f, s), score);
	}
	scores[ulong(at.y) * args.most + at.x] = score;
}

// rotated_query is 4 elements of a query of 128, those of a lane: the last pairs are rotated, then the
// query is transformed, with the bits of norm_rope. The lanes of a simdgroup have one query, so that
// the transform needs no memory. angles are those of the lane's two pairs; none are for pairs
// before the first that is rotated.
inline float4 rotated_query(float4 v, float2 angle0, float2 angle1, bool turned0, bool turned1, float scale, uint lane) {
	if (turned0) v.xy = turn(v.xy, angle0);
	if (turned1) v.zw = turn(v.zw, angle1);
	v = float4(v.x + v.y, v.x - v.y, v.z + v.w, v.z - v.w);
	v = float4(v.x + v.z, v.y + v.w, v.x - v.z, v.y - v.w);
	for (ushort apart = 1; apart < 32; apart *= 2) {
		const float4 other = float4(simd_shuffle_xor(v.x, apart), simd_shuffle_xor(v.y, apart), simd_shuffle_xor(v.z, apart), simd_shuffle_xor(v.w, apart));
		v = (lane & apart) != 0 ? other - v : v + other;
	}
	return v * scale;
}

// index_scores_128 handles dim 128 and a multiple of 8 heads up to 64. A
// threadgroup of 4 simdgroups takes `tiles` tiles of 32 entries for one row.
// Simdgroup s keeps the queries of heads 8s.. and 32+8s.. in 8x8 matrices and
// multiplies them with the tile, which is staged in threadgroup memory for all
// four. The products go to its own threadgroup memory, where lane e computes the
// weighted sum over the heads for entry e. Order of summation: dim by 8, then the
// heads of a simdgroup, then the simdgroups. Reads 256 bytes per entry and row,
// writes 4; the queries (512 bytes per head) are read once per threadgroup, which also rotates and
// transforms them where that is left to it. Grid: [entries][rows].
kernel void index_scores_128(constant rmg_index &args [[buffer(0)]],
                             device float *scores [[buffer(1)]],        // [rows][most]
                             device const float *q [[buffer(2)]],       // [rows][heads][128]
                             device const float *weights [[buffer(3)]], // [rows][heads]
                             device const half *cache [[buffer(4)]],    // [entries][128]
                             device const int *pos [[buffer(5)]],       // [rows], if rotated
                             device const float *freqs [[buffer(6)]],   // [q_pairs], if rotated
                             uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	// 8 queries for each simdgroup, then the tile and the products
	threadgroup float4 memory[4 * 8 * RMG_INDEX_DIM / 4];
	threadgroup half4 *tile_keys = (threadgroup half4 *)memory; // [32 entries][128]
	threadgroup float *products = (threadgroup float *)(memory + RMG_INDEX_TILE * RMG_INDEX_DIM / 8); // [4][16 heads][32 entries]
	threadgroup float sums[4 * RMG_INDEX_TILE];
	const uint n = seen(args, group.y), heads = uint(args.heads), thread_index = simdgroup * 32 + lane;
	const uint begin = group.x * uint(args.tiles) * RMG_INDEX_TILE;
	if (begin >= n || n <= uint(args.top_k)) return;
	const uint end = min(n, begin + uint(args.tiles) * RMG_INDEX_TILE);
	q += ulong(group.y) * heads * RMG_INDEX_DIM;
	weights += group.y * heads;
	cache += args.cache_skip;
	threadgroup half *keys = (threadgroup half *)tile_keys;

	simdgroup_float8x8 queries[2][RMG_INDEX_DIM / 8];
	float weight[16];
	threadgroup float4 *own = memory + simdgroup * 8 * RMG_INDEX_DIM / 4; // [8 heads][128]
	const uint turned = RMG_INDEX_DIM - 2 * uint(args.q_pairs);
	const bool turned0 = 4 * lane >= turned, turned1 = 4 * lane + 2 >= turned;
	float2 angle0 = 0, angle1 = 0;
	if (args.rotated != 0) {
		if (turned0) angle0 = cos_sin(float(pos[group.y]) * freqs[(4 * lane - turned) / 2]);
		if (turned1) angle1 = cos_sin(float(pos[group.y]) * freqs[(4 * lane + 2 - turned) / 2]);
	}
	for (ushort i = 0; i < 2; i++) {
		const uint h = 32 * i + 8 * simdgroup;
		if (args.rotated != 0 && h < heads) {
			device const float4 *from = (device const float4 *)(q + ulong(h) * RMG_INDEX_DIM);
			for (ushort k = 0; k < 8; k++) {
				own[32 * k + lane] = rotated_query(from[32 * k + lane], angle0, angle1, turned0, turned1, args.hadamard_scale, lane);
			}
			simdgroup_barrier(mem_flags::mem_threadgroup);
			for (ushort d = 0; d < RMG_INDEX_DIM / 8; d++) {
				simdgroup_load(queries[i][d], (threadgroup float *)own + 8 * d, RMG_INDEX_DIM);
			}
			simdgroup_barrier(mem_flags::mem_threadgroup); // before own changes
			for (ushort k = 0; k < 8; k++) weight[8 * i + k] = weights[h + k] * args.scale;
			continue;
		}
		for (ushort d = 0; d < RMG_INDEX_DIM / 8; d++) {
			if (h < heads) {
				simdgroup_load(queries[i][d], q + ulong(h) * RMG_INDEX_DIM + 8 * d, RMG_INDEX_DIM);
			} else {
				queries[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
			}
		}
		for (ushort k = 0; k < 8; k++) weight[8 * i + k] = h < heads ? weights[h + k] * args.scale : 0.0f;
	}

	threadgroup_barrier(mem_flags::mem_threadgroup); // the queries have been loaded

	threadgroup float *mine = products + simdgroup * 16 * RMG_INDEX_TILE; // [16 heads][32 entries]
	for (uint tile = begin; tile < end; tile += RMG_INDEX_TILE) {
		for (uint i = thread_index; i < RMG_INDEX_TILE * RMG_INDEX_DIM / 4; i += 128) {
			const uint e = tile + i / (RMG_INDEX_DIM / 4);
			half4 v = half4(0);
			if (e < end) v = *(device const half4 *)(cache + ulong(e) * RMG_INDEX_DIM + 4 * (i % (RMG_INDEX_DIM / 4)));
			tile_keys[i] = v;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (ushort e = 0; e < RMG_INDEX_TILE / 8; e++) {
			simdgroup_float8x8 s0 = make_filled_simdgroup_matrix<float, 8>(0.0f);
			simdgroup_float8x8 s1 = make_filled_simdgroup_matrix<float, 8>(0.0f);
			for (ushort d = 0; d < RMG_INDEX_DIM / 8; d++) {
				simdgroup_half8x8 k; // [dim][entry]
				simdgroup_load(k, keys + 8 * e * RMG_INDEX_DIM + 8 * d, RMG_INDEX_DIM, ulong2(0), true);
				simdgroup_multiply_accumulate(s0, queries[0][d], k, s0);
				simdgroup_multiply_accumulate(s1, queries[1][d], k, s1);
			}
			simdgroup_store(s0, mine + 8 * e, RMG_INDEX_TILE);
			simdgroup_store(s1, mine + 8 * RMG_INDEX_TILE + 8 * e, RMG_INDEX_TILE);
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		float sum = 0;
		for (ushort h = 0; h < 16; h++) sum = fma(weight[h], max(0.0f, mine[h * RMG_INDEX_TILE + lane]), sum);
		sums[simdgroup * RMG_INDEX_TILE + lane] = sum;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (simdgroup == 0 && tile + lane < end) {
			float score = sums[lane];
			for (ushort s = 1; s < 4; s++) score += sums[s * RMG_INDEX_TILE + lane];
			scores[ulong(group.y) * args.most + tile + lane] = score;
		}
	}
}

// index_blocks: the score of a block is the largest of its visible entries, and infinite for
// the block of the newest entry. One thread per block. Reads 4 bytes per entry, writes 4 per
// block. Grid: [blocks][rows].
kernel void index_blocks(constant rmg_index &args [[buffer(0)]],
                         device float *best [[buffer(1)]],         // [rows][most / block_size, rounded up]
                         device const float *scores [[buffer(2)]], // [rows][most]
                         uint2 at [[thread_position_in_grid]]) {
	const uint n = seen(args, at.y), size = uint(args.block_size), stride = (uint(args.most) + size - 1) / size;
	const uint first = at.x * size;
	if (first >= n) return;
	scores += ulong(at.y) * args.most;
	float score = INFINITY;
	if (first + size < n) {
		score = scores[first];
		for (uint i = first + 1; i < first + size; i++) score = max(score, scores[i]);
	}
	best[ulong(at.y) * stride + at.x] = score;
}

// index_mask makes the scores of entries outside the blocks of a row the least, if the row
// does not keep all its blocks. One thread per entry. Grid: [entries][rows].
kernel void index_mask(constant rmg_index &args [[buffer(0)]],
                       device float *scores [[buffer(1)]],     // [rows][most]
                       device const int *blocks [[buffer(2)]], // [rows][kept], ascending
                       uint2 at [[thread_position_in_grid]]) {
	const uint n = seen(args, at.y), size = uint(args.block_size), kept = uint(args.kept);
	if (at.x >= n || n <= kept * size) return;
	const int block = int(at.x / size);
	blocks += ulong(at.y) * kept;
	uint low = 0, high = kept;
	while (low < high) {
		const uint middle = (low + high) / 2;
		if (blocks[middle] < block) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	if (low == kept || blocks[low] != block) scores[ulong(at.y) * args.most + at.x] = -INFINITY;
}

// sortable maps a float to a uint of the same order; both zeros map to the same.
inline uint sortable(float f) {
	const uint u = f == 0 ? 0u : as_type<uint>(f);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// index_select writes the top_k entries (or blocks, if a score is one of args.per entries)
// with the largest scores in ascending order. One threadgroup per row. Radix select: the top_k-th largest key
// is found digit by digit from the top (11, 11 and 10 bits) from histograms of the
// keys that share the digits found so far; integer atomics make the result
// independent of the order. Then each simdgroup takes a contiguous range of the
// entries, counts what it will write, and writes behind the preceding simdgroups:
// all larger keys, and as many of the equal ones, from the lowest entry on, as are
// still wanted. Reads the scores five times, all but the first from the cache.
kernel void index_select(constant rmg_index &args [[buffer(0)]],
                         device int *selected [[buffer(1)]],       // [rows][top_k]
                         device const float *scores [[buffer(2)]], // [rows][most]
                         uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                         uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup atomic_uint counts[2048];
	threadgroup uint found[2], larger[32], equal[32]; // found: the digit, and the rank within it
	const uint per = uint(args.per), n = (seen(args, row) + per - 1) / per, top_k = uint(args.top_k);
	selected += ulong(row) * top_k;
	if (n <= top_k) {
		for (uint i = t; i < top_k; i += threads) selected[i] = i < n ? int(i) : -1;
		return;
	}
	scores += ulong(row) * ((uint(args.most) + per - 1) / per);

	uint key = 0, known = 0, wanted = top_k; // digits found, the mask of them, the rank among keys that share them
	for (uint round = 0; round < 3; round++) {
		const uint shift = round == 0 ? 21 : round == 1 ? 10 : 0, digits = round == 2 ? 1024 : 2048;
		for (uint i = t; i < digits; i += threads) atomic_store_explicit(&counts[i], 0u, memory_order_relaxed);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = t; i < n; i += threads) {
			const uint k = sortable(scores[i]);
			if ((k & known) == key) atomic_fetch_add_explicit(&counts[k >> shift & (digits - 1)], 1u, memory_order_relaxed);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (simdgroup == 0) {
			// Lane 0 has the largest digits. The lane that has the wanted rank in
			// its share finds the digit.
			const uint share = digits / 32, top = digits - 1 - lane * share;
			uint sum = 0;
			for (uint i = 0; i < share; i++) sum += atomic_load_explicit(&counts[top - i], memory_order_relaxed);
			uint above = simd_prefix_exclusive_sum(sum);
			if (above < wanted && wanted <= above + sum) {
				uint digit = top, here = atomic_load_explicit(&counts[digit], memory_order_relaxed);
				while (above + here < wanted) {
					above += here;
					here = atomic_load_explicit(&counts[--digit], memory_order_relaxed);
				}
				found[0] = digit;
				found[1] = wanted - above;
			}
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		key |= found[0] << shift;
		known |= (digits - 1) << shift;
		wanted = found[1];
	}

	const uint simdgroups = threads / 32, stretch = ((n + threads - 1) / threads) * 32;
	const uint begin = min(n, simdgroup * stretch), end = min(n, begin + stretch);
	uint more = 0, same = 0;
	for (uint i = begin + lane; i < end; i += 32) {
		const uint k = sortable(scores[i]);
		more += k > key ? 1 : 0;
		same += k == key ? 1 : 0;
	}
	more = simd_sum(more);
	same = simd_sum(same);
	if (lane == 0) {
		larger[simdgroup] = more;
		equal[simdgroup] = same;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	more = 0; // before this stretch, and then before this entry
	same = 0;
	for (uint s = 0; s < simdgroups; s++) {
		if (s < simdgroup) {
			more += larger[s];
			same += equal[s];
		}
	}
	for (uint first = begin; first < end; first += 32) {
		const uint i = first + lane, k = i < end ? sortable(scores[i]) : 0u;
		const uint is_more = i < end && k > key ? 1 : 0, is_same = i < end && k == key ? 1 : 0;
		const uint more_here = more + simd_prefix_exclusive_sum(is_more);
		const uint same_here = same + simd_prefix_exclusive_sum(is_same);
		if (is_more || (is_same && same_here < wanted)) selected[more_here + min(same_here, wanted)] = int(i);
		more += simd_sum(is_more);
		same += simd_sum(is_same);
	}
}
