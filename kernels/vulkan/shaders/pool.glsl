// pool_entry computes the normed entry of a block of positions from the rings into the shared
// array s. The threads of a workgroup stride over the channels. A thread first finds the
// largest score of a channel and then the sums, so a score is read twice, the second time
// from the cache.
void pool_entry(uint64_t ring_kv, uint64_t ring_score, InFloats norm, uint block) {
	const uint dim = uint(args.dim), width = uint(args.width), ratio = uint(args.ratio), rows = uint(args.ring_rows), t = thread();
	// The candidates: `before` tokens of the block before, on the first channels, and the
	// tokens of this block, with overlap on the second ones.
	const uint before = args.overlap != 0 && block > 0 ? ratio : 0, second = args.overlap != 0 ? dim : 0;
	const uint start = block * ratio - before;
	for (uint c = t; c < dim; c += THREADS) {
		float most = uintBitsToFloat(0xff800000u);
		for (uint i = 0; i < before + ratio; i++) {
			const float score = InFloats(ring_score + 4ul * width * ((start + i) % rows)).at[c + (i < before ? 0 : second)];
			// As the CPU's vectors: a NaN replaces what is there.
			most = i > 0 && most > score ? most : score;
		}
		float sum = 0;
		precise float weights = 0;
		for (uint i = 0; i < before + ratio; i++) {
			const uint64_t row = 4ul * width * ((start + i) % rows);
			const uint at = c + (i < before ? 0 : second);
			precise const float below = InFloats(ring_score + row).at[at] - most;
			const float w = exponential(below);
			sum = fused(w, InFloats(ring_kv + row).at[at], sum);
			weights = weights + w;
		}
		s[c] = quotient(sum, weights);
	}
	precise const float mean = quotient(sum_squares(0, dim), float(dim)) + args.eps;
	const float scale = quotient(1.0, root(mean));
	for (uint c = t; c < dim; c += THREADS) {
		precise float v = s[c] * scale;
		v = v * norm.at[c];
		s[c] = v;
	}
	barrier();
}
