// The ops that write the KV cache: StoreKV and Compress, see kernels.Backend.

// store_kv rounds rows to float16 and stores them in the ring. One thread per
// element. Reads 4 bytes per element, writes 2. Grid: [columns][rows].
kernel void store_kv(constant rmg_store_kv &args [[buffer(0)]],
                     device ushort *ring [[buffer(1)]],   // [ring_rows][cols]
                     device const float *x [[buffer(2)]], // [rows][cols]
                     uint2 at [[thread_position_in_grid]]) {
	const uint cols = uint(args.cols);
	if (at.x >= cols) return;
	const uint slot = (uint(args.pos) + at.y) % uint(args.ring_rows);
	ring[args.ring_skip + ulong(slot) * cols + at.x] = float16_bits(as_type<uint>(x[ulong(at.y) * cols + at.x]));
}

// compress_store stores projections into the rings of one compressor or two: those of the
// tokens with a row of APE in its view. One thread per element. Reads and writes 8 bytes
// per element. Grid: [largest width][rows][compressors].
kernel void compress_store(constant rmg_compress_store &args [[buffer(0)]],
                           device float *ring_kv [[buffer(1)]],     // [ring_rows][width]
                           device float *ring_score [[buffer(2)]],  // [ring_rows][width]
                           device const float *kv [[buffer(3)]],    // [rows][width]
                           device const float *score [[buffer(4)]], // [rows][width]
                           device const uchar *ape [[buffer(5)]],   // [ape_count] rows of [width]
                           device float *ring_kv1 [[buffer(6)]],    // those of the second one
                           device float *ring_score1 [[buffer(7)]],
                           device const float *kv1 [[buffer(8)]],
                           device const float *score1 [[buffer(9)]],
                           device const uchar *ape1 [[buffer(10)]],
                           uint3 at [[thread_position_in_grid]]) {
	const uint k = at.z, width = uint(args.width[k]), p = uint(args.pos) + at.y, row = p % uint(args.ratio[k]);
	const uint first = uint(args.ape_first[k]);
	if (at.x >= width || row < first || row >= first + uint(args.ape_count[k])) return;
	if (k != 0) {
		ring_kv = ring_kv1;
		ring_score = ring_score1;
		kv = kv1;
		score = score1;
		ape = ape1;
	}
	ape += args.ape_shift[k] + ulong(row - first) * args.ape_row_bytes[k];
	float bias = 0;
	if (args.ape_type[k] == RMG_APE_F32) {
		bias = ((device const float *)ape)[at.x];
	} else if (args.ape_type[k] == RMG_APE_F16) {
		bias = float(((device const half *)ape)[at.x]);
	} else if (args.ape_type[k] == RMG_APE_BF16) {
		bias = as_type<float>(uint(((device const ushort *)ape)[at.x]) << 16);
	}
	const ulong from = ulong(at.y) * width + at.x, to = ulong(p % uint(args.ring_rows[k])) * width + at.x;
	ring_kv[to] = kv[from];
	ring_score[to] = score[from] + bias;
}

// pool_entry computes the normed entry of a block from the rings in threadgroup memory.
// The threads of a group stride over the channels. A thread first finds the largest score
// of a channel and then the sums, so a score is read twice, the second time from the cache.
inline void pool_entry(constant rmg_compress &args, threadgroup float *entry, threadgroup float *partial,
                       device const float *ring_kv, device const float *ring_score, device const float *norm, uint block,
                       uint t, uint threads, uint lane, uint simdgroup) {
	const uint dim = uint(args.dim), width = uint(args.width), ratio = uint(args.ratio);
	// The candidates: `before` tokens of the block before, on the first channels,
	// and the tokens of this block, with overlap on the second ones.
	const uint before = args.overlap && block > 0 ? ratio : 0, second = args.overlap ? dim : 0;
	const uint start = block * ratio - before;
	float square = 0;
	for (uint c = t; c < dim; c += threads) {
		float most = -INFINITY;
		for (uint i = 0; i < before + ratio; i++) {
			const ulong at = ulong((start + i) % uint(args.ring_rows)) * width + c + (i < before ? 0 : second);
			most = max(most, ring_score[at]);
		}
		float sum = 0, weights = 0;
		for (uint i = 0; i < before + ratio; i++) {
			const ulong at = ulong((start + i) % uint(args.ring_rows)) * width + c + (i < before ? 0 : second);
			const float w = precise::exp(ring_score[at] - most);
			sum = fma(w, ring_kv[at], sum);
			weights += w;
		}
		const float v = sum / weights;
		entry[c] = v;
		square = fma(v, v, square);
	}
	square = group_sum(square, partial, lane, simdgroup, threads / 32);
	const float scale = 1.0f / precise::sqrt(square / float(dim) + args.eps);
	for (uint c = t; c < dim; c += threads) entry[c] *= scale * norm[c];
	threadgroup_barrier(mem_flags::mem_threadgroup);
}

// compress_latent stores the entry as it is: see kernels.CompressArgs. One threadgroup per
// entry. Reads 8*width*ratio bytes, writes 4*dim.
kernel void compress_latent(constant rmg_compress &args [[buffer(0)]],
                            device float *latent [[buffer(1)]],           // [entries of this call][dim]
                            device const float *ring_kv [[buffer(2)]],    // [ring_rows][width]
                            device const float *ring_score [[buffer(3)]], // [ring_rows][width]
                            device const float *norm [[buffer(4)]],       // [dim]
                            threadgroup float *entry [[threadgroup(0)]],  // [dim]
                            uint group [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float partial[32];
	const uint dim = uint(args.dim);
	pool_entry(args, entry, partial, ring_kv, ring_score, norm, uint(args.first) + group, t, threads, lane, simdgroup);
	for (uint c = t; c < dim; c += threads) latent[ulong(group) * dim + c] = entry[c];
}

// compress_entry rotates, transforms and rounds the entry: see kernels.CompressArgs. One
// threadgroup per entry. Reads 8*width*ratio bytes, writes 2*dim.
kernel void compress_entry(constant rmg_compress &args [[buffer(0)]],
                           device ushort *cache [[buffer(1)]],           // [entries of this call][dim]
                           device const float *ring_kv [[buffer(2)]],    // [ring_rows][width]
                           device const float *ring_score [[buffer(3)]], // [ring_rows][width]
                           device const float *norm [[buffer(4)]],       // [dim]
                           device const float *freqs [[buffer(5)]],      // [pairs]
                           threadgroup float *entry [[threadgroup(0)]],  // [dim]
                           uint group [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                           uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float partial[32];
	const uint dim = uint(args.dim), ratio = uint(args.ratio), block = uint(args.first) + group;
	pool_entry(args, entry, partial, ring_kv, ring_score, norm, block, t, threads, lane, simdgroup);
	threadgroup float *tail = entry + dim - 2 * uint(args.pairs);
	for (uint i = t; i < uint(args.pairs); i += threads) {
		const float2 y = turn(float2(tail[2 * i], tail[2 * i + 1]), cos_sin(float(block * ratio) * freqs[i]));
		tail[2 * i] = y.x;
		tail[2 * i + 1] = y.y;
	}
	float last = 1;
	if (args.hadamard) {
		hadamard(entry, dim, t, threads);
		last = args.hadamard_scale;
	} else {
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	cache += args.cache_skip + ulong(group) * dim;
	for (uint c = t; c < dim; c += threads) cache[c] = float16_bits(as_type<uint>(entry[c] * last));
}
