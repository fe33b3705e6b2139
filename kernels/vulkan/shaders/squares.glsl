// The sum of squares of a row in the order of the CPU's AVX-512 kernels (sum_squares of
// kernels/cpu/ops_kernels.inc.h): 64 chains, each of every 64th number; numbers behind the last
// 64 go on with the first chains. Included after lanes.glsl and exact.glsl, with
// ELEMENT(row, i), number i of a row, of type ROW.
shared float squares_chains[64];

// squares_chain is chain c of n numbers.
float squares_chain(ROW row, uint n, uint c) {
	const uint whole = n & ~63u, vectors = n & ~15u;
	float sum = 0;
	uint i = c;
	for (; i + 7 * 64 < whole; i += 8 * 64) { // all loads first: the sums wait for one another
		float v[8];
		[[unroll]] for (uint u = 0; u < 8; u++) v[u] = ELEMENT(row, i + 64 * u);
		[[unroll]] for (uint u = 0; u < 8; u++) sum = fused(v[u], v[u], sum);
	}
	for (; i < whole; i += 64) sum = fused(ELEMENT(row, i), ELEMENT(row, i), sum);
	if (c < 16) {
		for (i = whole + c; i < vectors; i += 16) sum = fused(ELEMENT(row, i), ELEMENT(row, i), sum);
	} else if (c < 32 && vectors + c - 16 < n) {
		i = vectors + c - 16;
		sum = fused(ELEMENT(row, i), ELEMENT(row, i), sum);
	}
	return sum;
}

// sum_squares is the same number for all threads of the workgroup, which all call it.
float sum_squares(ROW row, uint n) {
	barrier(); // earlier values have been read
	for (uint c = thread(); c < 64; c += THREADS) squares_chains[c] = squares_chain(row, n, c);
	barrier();
	const uint l = lane() & 15u;
	precise const float a = squares_chains[l] + squares_chains[16 + l], b = squares_chains[32 + l] + squares_chains[48 + l], sum = a + b;
	return lanes_sum(sum, 16);
}
