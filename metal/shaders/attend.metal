// Attend: see kernels.AttendArgs. The keys of a token are numbered: first the raw
// rows of its window in order of position, then its compressed entries.
//
// Online softmax: per head, all kernels keep the reference M of the exponents,
// which starts at the sink, or minus infinity without one, and grows with the scores, and the sums of exp(s-M) and
// exp(s-M)*K over the keys so far.

// view describes the keys that one token attends to.
struct view {
	uint first, raw; // position of the first raw row, and their number
	uint keys;       // raw rows and entries
};

inline view seen(constant rmg_attend &args, uint row, uint chosen) {
	const uint p = uint(args.pos) + row, window = uint(args.window);
	view v;
	v.first = window != 0 && p + 1 > window ? p + 1 - window : 0;
	v.raw = args.ring_rows > 0 ? p + 1 - v.first : 0;
	v.keys = v.raw;
	if (args.ratio > 0) v.keys += args.top_k > 0 ? chosen : (p + 1) / uint(args.ratio);
	return v;
}

// place is the location of key j of a view: a slot of the ring, or -1-e for entry e.
// An entry out of range is reported as a fault and replaced by a slot, or by entry 0.
inline int place(constant rmg_attend &args, thread const view &v, uint j, device const int *selected,
                 device atomic_uint *fault) {
	if (j < v.raw) return int((v.first + j) % uint(args.ring_rows));
	const uint e = args.top_k > 0 ? uint(selected[j - v.raw]) : j - v.raw;
	if (e < uint(args.entries)) return -1 - int(e);
	report(fault, FAULT_ROW);
	return args.ring_rows > 0 ? int(v.first % uint(args.ring_rows)) : -1;
}

inline float sink_of(constant rmg_attend &args, device const float *sinks, uint head) {
	return args.sunk != 0 ? sinks[head] : -INFINITY;
}

inline device const half *key_at(int place, uint dim, device const half *raw, device const half *compressed) {
	return place >= 0 ? raw + ulong(place) * dim : compressed + ulong(-1 - place) * dim;
}

// chosen is the number of entries of Selected before the first negative one. All
// threads of the group call it; `least` holds one number per simdgroup.
inline uint chosen(device const int *selected, uint top_k, threadgroup uint *least, uint thread_index, uint threads,
                   uint lane, uint simdgroup) {
	uint n = top_k;
	for (uint i = thread_index; i < top_k; i += threads) {
		if (selected[i] < 0) n = min(n, i);
	}
	n = simd_min(n);
	if (lane == 0) least[simdgroup] = n;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = 0; i < threads / 32; i++) n = min(n, least[i]);
	return n;
}

// attend_any handles any number of heads and any dim: one threadgroup of
// RMG_ATTEND_ANY threads per head and row. Each thread computes the score of one
// key of a tile; then the threads stride over the elements of the weighted sum.
// Reads each key twice per head, the second time from the cache. Grid:
// [heads][rows].
kernel void attend_any(constant rmg_attend &args [[buffer(0)]],
                       device float *out [[buffer(1)]],             // [rows][heads][value]
                       device const float *q [[buffer(2)]],         // [rows][heads][dim]
                       device const half *raw [[buffer(3)]],        // [ring_rows][dim]
                       device const half *compressed [[buffer(4)]], // [entries][dim], if there are any
                       device const int *selected [[buffer(5)]],    // [rows][top_k], if top_k > 0
                       device const float *sinks [[buffer(6)]],     // [heads], if there are any
                       device atomic_uint *fault [[buffer(7)]],
                       threadgroup float *sums [[threadgroup(0)]], // [value]
                       uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float weights[RMG_ATTEND_ANY], largest[4], added[4];
	threadgroup int places[RMG_ATTEND_ANY];
	threadgroup uint least[4];
	const uint dim = uint(args.dim), value = uint(args.value), t = simdgroup * 32 + lane;
	raw += args.raw_skip;
	compressed += args.compressed_skip;
	selected += ulong(group.y) * args.top_k;
	const ulong head = ulong(group.y) * args.heads + group.x;
	q += head * dim;
	uint count = 0;
	if (args.top_k > 0) count = chosen(selected, uint(args.top_k), least, t, RMG_ATTEND_ANY, lane, simdgroup);
	const view v = seen(args, group.y, count);
	for (uint d = t; d < value; d += RMG_ATTEND_ANY) sums[d] = 0;
	const float sink = sink_of(args, sinks, group.x);
	float reference = sink, total = 0;
	for (uint tile = 0; tile < v.keys; tile += RMG_ATTEND_ANY) {
		const uint n = min(uint(RMG_ATTEND_ANY), v.keys - tile);
		float s = -INFINITY;
		if (t < n) {
			places[t] = place(args, v, tile + t, selected, fault);
			device const half *key = key_at(places[t], dim, raw, compressed);
			s = 0;
			for (uint d = 0; d < dim; d++) s = fma(q[d], float(key[d]), s);
			s *= args.scale;
		}
		const float most = simd_max(s);
		if (lane == 0) largest[simdgroup] = most;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		const float before = reference;
		for (uint i = 0; i < 4; i++) reference = max(reference, largest[i]);
		const float weight = precise::exp(s - reference), shrunk = precise::exp(before - reference);
		weights[t] = weight;
		const float sum = simd_sum(weight);
		if (lane == 0) added[simdgroup] = sum;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		total = total * shrunk + (added[0] + added[1] + added[2] + added[3]);
		for (uint d = t; d < value; d += RMG_ATTEND_ANY) {
			float x = sums[d] * shrunk;
			for (uint k = 0; k < n; k++) x = fma(weights[k], float(key_at(places[k], dim, raw, compressed)[d]), x);
			sums[d] = x;
		}
		// All threads have read weights and places before the next tile
		// overwrites them.
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	const float inverse = 1.0f / (total + precise::exp(sink - reference));
	for (uint d = t; d < value; d += RMG_ATTEND_ANY) out[head * value + d] = sums[d] * inverse;
}

// rotated_queries loads the slices of 16 queries as norm_rope leaves them, with its bits: the norm of
// a head, if it is wanted, then the rotation of its last pairs. Each simdgroup computes the norms of
// two heads and rotates its own slice. angles [q_pairs] and scales [16] are threadgroup memory of
// others; own, of this simdgroup, has room for 8 heads of its slice. Reads the queries twice.
template <ushort B> struct rotated_queries {
	static void load(constant rmg_attend &args, device const float *q, device const int *pos, device const float *freqs, uint head0, uint row,
	                 threadgroup float2 *angles, threadgroup float *scales, threadgroup float *own,
	                 thread simdgroup_float8x8 *first, thread simdgroup_float8x8 *second, uint lane, uint simdgroup) {
		constexpr uint slice = 8 * B, dim = 64 * B;
		const uint heads = uint(args.heads), pairs = uint(args.q_pairs), turned = dim - 2 * pairs;
		q += ulong(row) * heads * dim;
		for (uint i = simdgroup * 32 + lane; i < pairs; i += 32 * RMG_ATTEND_SLICES) angles[i] = cos_sin(float(pos[row]) * freqs[i]);
		for (uint h = 2 * simdgroup; h < 2 * simdgroup + 2; h++) {
			float scale = 1;
			if (args.normed != 0) {
				// as many threads as norm_rope has: one for each float4
				device const float4 *x = (device const float4 *)(q + ulong(min(head0 + h, heads - 1)) * dim);
				scale = norm_scale(x, dim / 4, args.eps, (dim / 4 + 31) / 32 * 32, lane);
			}
			if (lane == 0) scales[h] = scale;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (ushort h = 0; h < 2; h++) {
			thread simdgroup_float8x8 *to = h == 0 ? first : second;
			if (head0 + 8 * h >= heads) {
				for (ushort d = 0; d < B; d++) to[d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
				continue;
			}
			for (uint i = lane; i < 8 * slice / 2; i += 32) {
				const uint r = 8 * h + i / (slice / 2), at = simdgroup * slice + 2 * (i % (slice / 2));
				device const float *x = q + ulong(head0 + r) * dim + at;
				float2 y = float2(x[0], x[1]) * scales[r];
				if (at >= turned) y = turn(y, angles[(at - turned) / 2]);
				own[2 * i] = y.x;
				own[2 * i + 1] = y.y;
			}
			simdgroup_barrier(mem_flags::mem_threadgroup);
			for (ushort d = 0; d < B; d++) simdgroup_load(to[d], own + 8 * d, slice);
			simdgroup_barrier(mem_flags::mem_threadgroup); // before own changes
		}
		threadgroup_barrier(mem_flags::mem_threadgroup); // angles and scales have been read
	}
};

// attend_tiles handles dim 64*B and a multiple of 8 heads. A threadgroup of 8
// simdgroups takes 16 heads of one row and a split of its keys, 16 keys at a time.
// Simdgroup s owns elements [8*B*s, 8*B*(s+1)) of everything: of the queries and
// the sums, in 8x8 matrices that stay in registers, and of the keys, which it
// stages in threadgroup memory for itself. So each key is read once for 16 heads
// and used twice.
//
//	1. Each simdgroup multiplies its slices: 16x16 partial scores.
//	2. Simdgroup s reduces the partial scores of heads 2s and 2s+1, one per
//	   lane, and turns them into weights.
//	3. Each simdgroup accumulates weights times its slice of the keys.
//
// The reference of a head is raised only when a score exceeds it by more than 8;
// then its sums are rescaled, by a product with a diagonal matrix. Weights up to
// exp(8) lose no relative precision.
//
// Order of summation: a score by 8 within a slice, then over the slices; a head
// over keys by 8. With more than one split, sums and references go to memory for
// attend_combine. Reads 2*dim bytes per key for 16 heads and 4*dim per head for the
// query, writes 4*value per head and split. Grid: [blocks of 16 heads][splits][rows].
template <ushort B>
inline void attend_tiles(constant rmg_attend &args, device float *out, device float *parts, device const float *q,
                         device const half *raw, device const half *compressed, device const int *selected,
                         device const float *sinks, device atomic_uint *fault, device const int *pos,
                         device const float *freqs, threadgroup half4 *keys,
                         threadgroup float *scores, threadgroup float *weights, threadgroup float *shrink,
                         threadgroup uint *flags, uint3 group, uint lane, uint simdgroup) {
	constexpr ushort slice = 8 * B, dim = 64 * B; // of a simdgroup, of a head
	const uint value = uint(args.value);           // a multiple of 8
	const uint heads = uint(args.heads), head0 = group.x * RMG_ATTEND_HEADS, row = group.z;
	raw += args.raw_skip;
	compressed += args.compressed_skip;
	selected += ulong(row) * args.top_k;
	uint count = 0;
	if (args.top_k > 0) {
		count = chosen(selected, uint(args.top_k), flags, simdgroup * 32 + lane, 32 * RMG_ATTEND_SLICES, lane, simdgroup);
	}
	const view v = seen(args, row, count);
	const uint begin = min(v.keys, group.y * uint(args.span)), end = min(v.keys, begin + uint(args.span));

	threadgroup half4 *staged = keys + simdgroup * RMG_ATTEND_KEYS * (slice / 4); // [16 keys][slice]
	simdgroup_float8x8 query[2][B], sum[2][B];
	if (args.rotated != 0) {
		rotated_queries<B>::load(args, q, pos, freqs, head0, row, (threadgroup float2 *)scores, weights, (threadgroup float *)staged,
		                         query[0], query[1], lane, simdgroup);
	}
	for (ushort h = 0; h < 2; h++) {
		const uint head = head0 + 8 * h;
		for (ushort d = 0; d < B; d++) {
			sum[h][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
			if (args.rotated != 0) continue;
			if (head < heads) {
				simdgroup_load(query[h][d], q + (ulong(row) * heads + head) * dim + simdgroup * slice + 8 * d, dim);
			} else {
				query[h][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
			}
		}
	}
	// Step 2: a lane has one head of this simdgroup and one key of the tile.
	const uint head = 2 * simdgroup + lane / 16, key = lane % 16;
	const float sink = sink_of(args, sinks, min(head0 + head, heads - 1));
	float reference = sink, total = 0;
	threadgroup half *mine = (threadgroup half *)staged;
	threadgroup float *diagonal = shrink + (head / 8) * 64 + (head % 8) * 8;     // row of head

	for (uint tile = begin; tile < end; tile += RMG_ATTEND_KEYS) {
		for (ushort i = 0; i < B; i++) {
			const uint at = lane + 32 * i, k = at / (slice / 4), d = 4 * (at % (slice / 4));
			half4 x = half4(0);
			if (tile + k < end) {
				device const half *from = key_at(place(args, v, tile + k, selected, fault), dim, raw, compressed);
				x = *(device const half4 *)(from + simdgroup * slice + d);
			}
			staged[at] = x;
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		for (ushort k = 0; k < 2; k++) {
			simdgroup_float8x8 s0 = make_filled_simdgroup_matrix<float, 8>(0.0f);
			simdgroup_float8x8 s1 = make_filled_simdgroup_matrix<float, 8>(0.0f);
			for (ushort d = 0; d < B; d++) {
				simdgroup_half8x8 x; // [element][key]
				simdgroup_load(x, mine + 8 * k * slice + 8 * d, slice, ulong2(0), true);
				simdgroup_multiply_accumulate(s0, query[0][d], x, s0);
				simdgroup_multiply_accumulate(s1, query[1][d], x, s1);
			}
			simdgroup_store(s0, scores + simdgroup * 256 + 8 * k, 16);
			simdgroup_store(s1, scores + simdgroup * 256 + 128 + 8 * k, 16);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);

		float s = 0;
		for (ushort i = 0; i < RMG_ATTEND_SLICES; i++) s += scores[i * 256 + head * 16 + key];
		s = tile + key < end ? s * args.scale : -INFINITY;
		float most = s, before = reference;
		for (ushort i = 8; i > 0; i /= 2) most = max(most, simd_shuffle_xor(most, i));
		if (most > reference + 8.0f) reference = most;
		const float weight = precise::exp(s - reference), shrunk = precise::exp(before - reference);
		float added = weight;
		for (ushort i = 8; i > 0; i /= 2) added += simd_shuffle_xor(added, i);
		total = fma(total, shrunk, added);
		weights[head * 16 + key] = weight;
		if (key < 8) diagonal[key] = key == head % 8 ? shrunk : 0.0f;
		const bool grown = simd_any(reference != before);
		if (lane == 0) flags[simdgroup] = grown ? 1 : 0;
		threadgroup_barrier(mem_flags::mem_threadgroup);

		uint any = 0;
		for (ushort i = 0; i < RMG_ATTEND_SLICES; i++) any |= flags[i];
		if (any != 0) {
			for (ushort h = 0; h < 2; h++) {
				simdgroup_float8x8 by;
				simdgroup_load(by, shrink + 64 * h, 8);
				for (ushort d = 0; d < B; d++) simdgroup_multiply(sum[h][d], by, sum[h][d]);
			}
		}
		for (ushort k = 0; k < 2; k++) {
			simdgroup_float8x8 w0, w1; // [head][key]
			simdgroup_load(w0, weights + 8 * k, 16);
			simdgroup_load(w1, weights + 128 + 8 * k, 16);
			for (ushort d = 0; d < B; d++) {
				simdgroup_half8x8 x; // [key][element]
				simdgroup_load(x, mine + 8 * k * slice + 8 * d, slice);
				simdgroup_multiply_accumulate(sum[0][d], w0, x, sum[0][d]);
				simdgroup_multiply_accumulate(sum[1][d], w1, x, sum[1][d]);
			}
		}
		simdgroup_barrier(mem_flags::mem_threadgroup); // before the next tile is staged
	}

	threadgroup_barrier(mem_flags::mem_threadgroup); // the last tile's diagonal has been read
	const ulong part = ulong(row) * args.splits + group.y;
	if (args.splits > 1) {
		if (key == 0 && head0 + head < heads) {
			parts[(part * heads + head0 + head) * 2] = reference;
			parts[(part * heads + head0 + head) * 2 + 1] = total;
		}
	} else {
		const float inverse = 1.0f / (total + precise::exp(sink - reference));
		if (key < 8) diagonal[key] = key == head % 8 ? inverse : 0.0f;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (ushort h = 0; h < 2; h++) {
		if (head0 + 8 * h < heads) {
			device float *to = out + (part * heads + head0 + 8 * h) * value + simdgroup * slice;
			simdgroup_float8x8 by;
			if (args.splits == 1) simdgroup_load(by, shrink + 64 * h, 8);
			for (ushort d = 0; d < B; d++) {
				if (simdgroup * slice + 8 * d >= value) break; // a key's elements beyond its value
				if (args.splits == 1) simdgroup_multiply(sum[h][d], by, sum[h][d]);
				simdgroup_store(sum[h][d], to + 8 * d, value);
			}
		}
	}
}

#define ATTEND(NAME, B)                                                                                                \
	kernel void NAME(constant rmg_attend &args [[buffer(0)]],                                                             \
	                 device float *out [[buffer(1)]],             /* [rows][splits][heads][value] */                      \
	                 device float *parts [[buffer(2)]],           /* [rows][splits][heads][2], if splits > 1 */          \
	                 device const float *q [[buffer(3)]],         /* [rows][heads][64*B] */                              \
	                 device const half *raw [[buffer(4)]],        /* [ring_rows][64*B] */                                \
	                 device const half *compressed [[buffer(5)]], /* [entries][64*B], if there are any */                \
	                 device const int *selected [[buffer(6)]],    /* [rows][top_k], if top_k > 0 */                      \
	                 device const float *sinks [[buffer(7)]],     /* [heads] */                                          \
	                 device atomic_uint *fault [[buffer(8)]],                                                            \
	                 device const int *pos [[buffer(9)]],         /* [rows], if rotated */                               \
	                 device const float *freqs [[buffer(10)]],    /* [q_pairs], if rotated */                            \
	                 uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],              \
	                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {                                                \
		threadgroup half4 keys[RMG_ATTEND_KEYS * 16 * B];                                                                   \
		threadgroup float scores[RMG_ATTEND_SLICES * RMG_ATTEND_HEADS * RMG_ATTEND_KEYS];                                     \
		threadgroup float weights[RMG_ATTEND_HEADS * RMG_ATTEND_KEYS];                                                       \
		threadgroup float shrink[2 * 64];                                                                                  \
		threadgroup uint flags[RMG_ATTEND_SLICES];                                                                          \
		attend_tiles<B>(args, out, parts, q, raw, compressed, selected, sinks, fault, pos, freqs, keys, scores, weights, shrink, \
		                flags, group, lane, simdgroup);                                                                    \
	}
ATTEND(attend_64, 1)
ATTEND(attend_256, 4)
ATTEND(attend_512, 8)
ATTEND(attend_576, 9)

// attend_combine puts the parts of a head together, in order, and rotates the pairs at its
// end back. One threadgroup for each head of each row. Reads 4*(value+2) bytes a split,
// writes 4*value. Grid: [heads][rows].
kernel void attend_combine(constant rmg_attend &args [[buffer(0)]],
                           device float *out [[buffer(1)]],         // [rows][heads][value]
                           device const float *sums [[buffer(2)]],  // [rows][splits][heads][value]
                           device const float *parts [[buffer(3)]], // [rows][splits][heads][2]
                           device const float *sinks [[buffer(4)]], // [heads], if there are any
                           device const int *pos [[buffer(6)]],     // [rows], if pairs > 0
                           device const float *freqs [[buffer(7)]], // [pairs], radians per position
                           uint2 group [[threadgroup_position_in_grid]], uint2 thread_index [[thread_position_in_threadgroup]],
                           uint2 size [[threads_per_threadgroup]]) {
	const uint splits = uint(args.splits), heads = uint(args.heads), value = uint(args.value), head = group.x;
	const ulong first = ulong(group.y) * splits * heads + head; // and the next split `heads` further
	const float sink = sink_of(args, sinks, head);
	float reference = sink;
	for (uint i = 0; i < splits; i++) reference = max(reference, parts[(first + ulong(i) * heads) * 2]);
	float factor[RMG_ATTEND_SPLITS];
	float total = precise::exp(sink - reference);
	for (uint i = 0; i < splits; i++) {
		device const float *part = parts + (first + ulong(i) * heads) * 2;
		factor[i] = precise::exp(part[0] - reference);
		total = fma(factor[i], part[1], total);
	}
	const float inverse = 1.0f / total;
	const uint turned = value - 2 * uint(args.pairs); // the first that is rotated
	out += (ulong(group.y) * heads + head) * value;
	for (uint d = 2 * thread_index.x; d < value; d += 2 * size.x) { // value is even here
		float2 s = float2(0);
		for (uint i = 0; i < splits; i++) {
			device const float *part = sums + (first + ulong(i) * heads) * value + d;
			s = fma(float2(factor[i]), float2(part[0], part[1]), s);
		}
		s *= inverse;
		if (d >= turned) {
			const float2 angle = cos_sin(float(pos[group.y]) * freqs[(d - turned) / 2]);
			s = turn(s, float2(angle.x, -angle.y));
		}
		out[d] = s.x;
		out[d + 1] = s.y;
	}
}
