// Products of quantised weights and packed activations (kernels/gpu/args/packed.h) with the
// bits of the CPU: kernels/cpu/matmul.h has the arithmetic. Included after decode.glsl and
// lanes.glsl.
//
// A simdgroup computes RMG_PACKED_ROWS = 4 rows. Lane 4*c + k multiplies quarter k of the
// groups c, c+8, c+16, ... of all four rows; then the lanes 4*c to 4*c+3 add their integers so
// that lane 4*c + k has the dot product of row k, and with it the sum of lane c of
// the CPU's eight lanes.

#include "dot.glsl"

// give_row leaves row k of a[4] in lane k of four, added over the four.
int give_row(int a[4]) {
	const uint k = lane() & 3u;
	// First each pair of lanes keeps two rows, then each lane one.
	const bool odd = (k & 1u) != 0u, upper = (k & 2u) != 0u;
	const int keep0 = odd ? a[1] : a[0], keep1 = odd ? a[3] : a[2];
	const int give0 = odd ? a[0] : a[1], give1 = odd ? a[2] : a[3];
	const int low = keep0 + int(lanes_xor(uint(give0), 1u)), high = keep1 + int(lanes_xor(uint(give1), 1u));
	return (upper ? high : low) + int(lanes_xor(uint(upper ? low : high), 2u));
}

// products are the dot products of a row of weights with TOKENS rows of packed activations.
// The rows begin at `first` of `rows`, row_bytes apart from `matrix` on; rows beyond the last
// repeat it. Lane 4*c + k returns row first+k, whatever c. x is the address of the first row of
// activations, apart[t] the bytes from there to row t.
void products(uint64_t matrix, uint row_bytes, uint first, uint rows, uint cols, uint64_t x, const uint64_t apart[TOKENS], out float result[TOKENS]) {
	const uint c = lane() >> 2, k = lane() & 3u, groups = cols / 32u;
	uint64_t at[4];
	[[unroll]] for (uint r = 0; r < 4; r++) at[r] = matrix + uint64_t(min(first + r, rows - 1u)) * row_bytes;
	const uint64_t own = matrix + uint64_t(min(first + k, rows - 1u)) * row_bytes;
	float acc[TOKENS];
	[[unroll]] for (uint t = 0; t < TOKENS; t++) acc[t] = 0;
	// As many turns for all lanes, because give_row may have barriers.
	for (uint from = 0; from < groups; from += 8) {
		const uint g = min(from + c, groups - 1u);
		const bool inside = from + c < groups;
		uint w0[4], w1[4];
		int scale[4];
		[[unroll]] for (uint r = 0; r < 4; r++) quarter(at[r], g, k, w0[r], w1[r], scale[r]);
		float s, m0, m1;
		scales(own, g, s, m0, m1);
		[[unroll]] for (uint t = 0; t < TOKENS; t++) {
			const uint64_t group = x + apart[t] + uint64_t(RMG_PACKED_GROUP) * g;
			const uvec2 q = InUint2s(group + 8ul * k).at[0], n = InUint2s(group + 32ul + 8ul * k).at[0];
			const vec4 d = InFloat4s(group + 64ul).at[0];
			int part[4];
			[[unroll]] for (uint r = 0; r < 4; r++) {
				const int upper = dot(w0[r], q.x) + dot(w1[r], q.y), lower = dot(w0[r], n.x) + dot(w1[r], n.y);
				part[r] = scale[r] * (128 * upper + lower);
			}
			const int sum = give_row(part);
			float next = acc[t];
			if (MINIMA) next = fused(m0, d.y, next);
			if (HALF_MINIMA) next = fused(m1, d.w, fused(m0, d.z, next));
			precise const float by = s * d.x;
			next = fused(by, float(sum), next);
			if (inside) acc[t] = next;
		}
	}
	// rm_sum8: lanes 4 apart, then 2, then 1.
	[[unroll]] for (uint t = 0; t < TOKENS; t++) {
		precise float sum = acc[t];
		sum = sum + lanes_xor(sum, 16u);
		sum = sum + lanes_xor(sum, 8u);
		sum = sum + lanes_xor(sum, 4u);
		result[t] = sum;
	}
}
