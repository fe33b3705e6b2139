// Tiles of products of quantised weights and packed activations, with the bits of the CPU
// (packed.glsl): RMG_TILE_ROWS = 32 rows of weights by RMG_TILE_TOKENS = 32 rows of
// activations for a workgroup of 256 threads. Included after packed.glsl's companions, in
// place of packed.glsl.
//
// Simdgroup c is lane c of the CPU's eight: it multiplies the groups c, c+8, c+16, ... of the
// whole tile. It unpacks a group of the 32 rows to shared memory, once for all tokens; then lane
// 8*j + i has the rows i, i+8, i+16, i+24 and the tokens 8*j to 8*j+7. So a group of weights costs
// a lane four quarters of decoding and 64 instructions of four products for each of its
// 8 tokens, and 80 bytes of activations for each token from the caches. Simdgroups share
// nothing before the sums of lanes at the end.
#include "dot.glsl"

#define TILE_TOKENS 8 // of a lane
#define TILE_SIMDGROUPS 8

// Unpacked weights by words of four: word k of row r is [k][r % 8][r / 8]. One uvec4 more for
// each word keeps the lanes that write out of each other's banks.
shared uvec4 tile_words[TILE_SIMDGROUPS][8][9];
shared vec4 tile_scale[TILE_SIMDGROUPS][8], tile_minimum[TILE_SIMDGROUPS][8], tile_minimum1[TILE_SIMDGROUPS][8];
shared ivec4 tile_by[TILE_SIMDGROUPS][2][8]; // integer scales of half groups
shared float tile_sums[TILE_SIMDGROUPS][32][TILE_TOKENS];
shared uint tile_source[RMG_TILE_TOKENS]; // the first packed group of each token; set by the kernel

// Types with an integer scale for each half of a group.
#define HALF_SCALES (TYPE == Q2_K || TYPE == Q3_K || TYPE == Q6_K)

// tile_meet waits for the other lanes of the simdgroup, and for what they wrote.
void tile_meet() {
	if (SUBGROUPS != 0) {
		subgroupMemoryBarrierShared();
		subgroupBarrier();
	} else {
		barrier();
	}
}

// fused4 is fused for four rows.
vec4 fused4(vec4 a, vec4 b, vec4 c) {
	if (FUSED != 0) {
		precise vec4 sum = fma(a, b, c);
		return sum;
	}
	vec4 r;
	for (int p = 0; p < 4; p++) r[p] = fused_soft(a[p], b[p], c[p]);
	return r;
}

int dot16(uvec4 w, uvec4 x) { return dot(w.x, x.x) + dot(w.y, x.y) + dot(w.z, x.z) + dot(w.w, x.w); }

// tile_unpack unpacks group g of the rows from `first` on. Rows beyond the last repeat it.
void tile_unpack(uint64_t matrix, uint row_bytes, uint first, uint rows, uint g) {
	const uint c = simdgroup(), k = lane() & 3u;
	[[unroll]] for (uint p = 0; p < 4; p++) {
		const uint r = 8u * p + (lane() >> 2);
		uint w0, w1;
		int by;
		quarter(matrix + uint64_t(min(first + r, rows - 1u)) * row_bytes, g, k, w0, w1, by);
		tile_words[c][2u * k][r & 7u][p] = w0;
		tile_words[c][2u * k + 1u][r & 7u][p] = w1;
		if (HALF_SCALES && (k & 1u) == 0u) tile_by[c][k >> 1][r & 7u][p] = by;
	}
	float s, m0, m1;
	scales(matrix + uint64_t(min(first + lane(), rows - 1u)) * row_bytes, g, s, m0, m1);
	tile_scale[c][lane() & 7u][lane() >> 3] = s;
	if (MINIMA || HALF_MINIMA) tile_minimum[c][lane() & 7u][lane() >> 3] = m0;
	if (HALF_MINIMA) tile_minimum1[c][lane() & 7u][lane() >> 3] = m1;
}

// tile_products leaves in acc[t][p] what simdgroup c's groups add to the product of row
// i + 8*p and the lane's token t. x is the address of the packed activations.
void tile_products(uint64_t matrix, uint row_bytes, uint first, uint rows, uint cols, uint64_t x, out vec4 acc[TILE_TOKENS]) {
	const uint c = simdgroup(), i = lane() & 7u, j = lane() >> 3, groups = cols / 32u;
	uint source[TILE_TOKENS];
	[[unroll]] for (uint t = 0; t < TILE_TOKENS; t++) {
		source[t] = tile_source[TILE_TOKENS * j + t];
		acc[t] = vec4(0);
	}
	// As many turns for all simdgroups, because tile_meet may be a barrier of all.
	for (uint from = 0; from < groups; from += 8u) {
		const uint g = min(from + c, groups - 1u);
		tile_meet(); // the last group's weights have been read
		tile_unpack(matrix, row_bytes, first, rows, g);
		tile_meet();
		if (from + c >= groups) continue;
		uvec4 w[8];
		[[unroll]] for (uint k = 0; k < 8; k++) w[k] = tile_words[c][k][i];
		const vec4 scale = tile_scale[c][i], m0 = tile_minimum[c][i], m1 = tile_minimum1[c][i];
		const ivec4 by0 = tile_by[c][0][i], by1 = tile_by[c][1][i];
		[[unroll]] for (uint t = 0; t < TILE_TOKENS; t++) {
			const uint64_t group = x + uint64_t(RMG_PACKED_GROUP) * (source[t] + g);
			InUint4s parts = InUint4s(group);
			const uvec4 q0 = parts.at[0], q1 = parts.at[1], n0 = parts.at[2], n1 = parts.at[3];
			const vec4 d = uintBitsToFloat(parts.at[4]); // scale, and that times the sums
			ivec4 sum; // of the four rows
			[[unroll]] for (uint p = 0; p < 4; p++) {
				const uvec4 w0 = uvec4(w[0][p], w[1][p], w[2][p], w[3][p]), w1 = uvec4(w[4][p], w[5][p], w[6][p], w[7][p]);
				if (HALF_SCALES) {
					sum[p] = by0[p] * (128 * dot16(w0, q0) + dot16(w0, n0)) + by1[p] * (128 * dot16(w1, q1) + dot16(w1, n1));
				} else {
					sum[p] = 128 * (dot16(w0, q0) + dot16(w1, q1)) + (dot16(w0, n0) + dot16(w1, n1));
				}
			}
			if (MINIMA) acc[t] = fused4(m0, vec4(d.y), acc[t]);
			if (HALF_MINIMA) acc[t] = fused4(m1, vec4(d.w), fused4(m0, vec4(d.z), acc[t]));
			precise const vec4 step = scale * d.x;
			acc[t] = fused4(step, vec4(sum), acc[t]);
		}
	}
}

// Of the output of each of four passes, thread() has row tile_row(pass) and token
// tile_token() of the tile.
uint tile_row(uint pass) { return 8u * pass + (thread() & 7u); }
uint tile_token() { return TILE_TOKENS * (thread() >> 6) + (thread() >> 3 & 7u); }

// tile_sum is the thread's output of a pass: the eight lanes in the order of rm_sum8.
float tile_sum(vec4 acc[TILE_TOKENS], uint pass) {
	barrier(); // the last pass has been read
	[[unroll]] for (uint t = 0; t < TILE_TOKENS; t++) tile_sums[simdgroup()][lane()][t] = acc[t][pass];
	barrier();
	const uint from = (thread() & 7u) + 8u * (thread() >> 6), t = thread() >> 3 & 7u;
	float a[8];
	[[unroll]] for (uint c = 0; c < 8; c++) a[c] = tile_sums[c][from][t];
	precise const float even = (a[0] + a[4]) + (a[2] + a[6]), odd = (a[1] + a[5]) + (a[3] + a[7]);
	precise const float sum = even + odd;
	return sum;
}
