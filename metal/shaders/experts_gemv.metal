// GEMV of the routed experts, for few slots per expert: a simdgroup computes some
// rows of one slot and reads their weights once. Its lanes stride over chunks of 16
// columns; a chunk of the input stays in registers for all rows.

enum { SIMDGROUPS = 4 }; // per threadgroup; they share nothing

// input loads chunk i of 16 floats of a row of n, padded with zeros.
inline void input(device const float *x, uint i, uint n, bool vectors, thread float (&v)[16]) {
	x += 16 * i;
	if (16 * i + 16 > n) {
		for (uint k = 0; k < 16; k++) v[k] = 16 * i + k < n ? x[k] : 0;
	} else if (vectors) {
		for (ushort k = 0; k < 4; k++) {
			const float4 four = ((device const float4 *)x)[k];
			for (ushort j = 0; j < 4; j++) v[4 * k + j] = four[j];
		}
	} else {
		for (ushort k = 0; k < 16; k++) v[k] = x[k];
	}
}

// product is the dot product of chunk i of a row of n weights with chunk v of the
// input; total is the sum of v.
template <typename T>
inline float product(device const uchar *row, uint i, uint n, thread const float (&v)[16], float total) {
	float q[16], least = 0, scale = 1;
	if (T::PLAIN && 16 * i + 16 > n) {
		T::decode_to(row, i, n, q);
	} else {
		scale = T::quants(row, i, q, least);
	}
	float sum = 0;
	for (ushort k = 0; k < 16; k++) sum = fma(q[k], v[k], sum);
	return T::MINIMA ? scale * sum - least * total : scale * sum;
}

inline float total_of(thread const float (&v)[16]) {
	float sum = 0;
	for (ushort k = 0; k < 16; k++) sum += v[k];
	return sum;
}

// expert_gate_up: mid[slot] = weight * swiglu(gate[e]·x, up[e]·x), gate and up of
// one type. Grid: [tiles of 4*R rows][places]. A slot that is not computed is
// cleared before any weight is read. Reads gate and up of the local experts once
// per slot and 4*cols bytes of x per R rows, the latter from the caches; writes mid
// once.
template <typename T, int R>
kernel void expert_gate_up(constant rmg_experts &args [[buffer(0)]],
                           device float *mid [[buffer(1)]],           // [slots][rows]
                           device const float *x [[buffer(2)]],       // [slots/share][cols]
                           device const int *offsets [[buffer(3)]],   // [experts+1]
                           device const int *slots [[buffer(4)]],     // [slots]
                           device const float *weights [[buffer(5)]], // [slots]
                           device const uchar *gate [[buffer(6)]],    // view
                           device const uchar *up [[buffer(7)]],      // view
                           device atomic_uint *fault [[buffer(8)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
	const uint place = group.y, rows = args.rows, cols = args.cols, first = (group.x * SIMDGROUPS + simdgroup) * R;
	if (first >= rows) return;
	const int slot = slot_at(args, offsets, slots, place, fault);
	if (slot < 0) return;
	mid += ulong(slot) * rows;
	const float weight = weights[slot];
	if (weight == 0 || !owned(args, offsets, place)) {
		if (args.zero == RMG_ZERO_MID && lane < R && first + lane < rows) mid[first + lane] = 0;
		return;
	}
	if (int(place) < offsets[args.low] || int(place) >= offsets[args.high]) return; // in another view
	const int e = expert_at(args, offsets, place, lane);
	device const uchar *gates = matrix_of(args.w, gate, e), *ups = matrix_of(args.up, up, e);
	x += ulong(uint(slot) / args.share) * cols;
	float g[R], u[R];
	for (ushort r = 0; r < R; r++) g[r] = u[r] = 0;
	for (uint i = lane; 16 * i < cols; i += 32) {
		float v[16];
		input(x, i, cols, args.vectors != 0, v);
		const float total = T::MINIMA ? total_of(v) : 0;
		for (ushort r = 0; r < R; r++) {
			const ulong row = min(first + r, rows - 1);
			g[r] += product<T>(gates + row * args.w.row_bytes, i, cols, v, total);
			u[r] += product<T>(ups + row * args.up.row_bytes, i, cols, v, total);
		}
	}
	for (ushort r = 0; r < R; r++) {
		const float gr = simd_sum(g[r]), ur = simd_sum(u[r]);
		if (lane == r && first + r < rows) mid[first + r] = weight * swiglu(gr, ur, args.clamp);
	}
}

// expert_gemv: out[slot] = w[e]·in, or with glu out[slot] =
// weight * swiglu(out[slot], w[e]·in). Grid: [tiles of 4*R rows][places],
// then threadgroups that clear rows. Reads the matrices of the local experts once
// per slot and 4*cols bytes of the input per R rows, the latter from the caches;
// writes out once.
template <typename T, int R>
kernel void expert_gemv(constant rmg_experts &args [[buffer(0)]],
                        device float *out [[buffer(1)]],           // [slots][rows]
                        device const float *in [[buffer(2)]],      // [slots/share][cols]
                        device const int *offsets [[buffer(3)]],   // [experts+1]
                        device const int *slots [[buffer(4)]],     // [slots]
                        device const float *weights [[buffer(5)]], // [slots]
                        device const uchar *w [[buffer(6)]],       // view
                        device atomic_uint *fault [[buffer(7)]],
                        device const float *scales [[buffer(8)]],  // view, if args.w.scale >= 0
                        uint2 group [[threadgroup_position_in_grid]],
                        uint2 groups [[threadgroups_per_grid]],
                        ushort simdgroup [[simdgroup_index_in_threadgroup]],
                        ushort lane [[thread_index_in_simdgroup]]) {
	const uint place = group.y, rows = args.rows, cols = args.cols, first = (group.x * SIMDGROUPS + simdgroup) * R;
	if (place >= args.places) {
		set_zero(args, out, offsets, slots, weights, fault, (place - args.places) * groups.x + group.x,
		         simdgroup * 32 + lane, 32 * SIMDGROUPS, lane);
		return;
	}
	if (first >= rows) return;
	const int slot = slot_at(args, offsets, slots, place, fault);
	if (slot < 0) return;
	const float weight = weights[slot];
	if (weight == 0 || int(place) < offsets[args.low] || int(place) >= offsets[args.high]) return;
	const int e = expert_at(args, offsets, place, lane);
	device const uchar *matrix = matrix_of(args.w, w, e);
	in += ulong(uint(slot) / args.share) * cols;
	out += ulong(slot) * rows;
	float y[R];
	for (ushort r = 0; r < R; r++) y[r] = 0;
	for (uint i = lane; 16 * i < cols; i += 32) {
		float v[16];
		input(in, i, cols, args.vectors != 0, v);
		const float total = T::MINIMA ? total_of(v) : 0;
		for (ushort r = 0; r < R; r++) {
			y[r] += product<T>(matrix + ulong(min(first + r, rows - 1)) * args.w.row_bytes, i, cols, v, total);
		}
	}
	for (ushort r = 0; r < R; r++) {
		const float yr = scaled(args.w, scales, e, simd_sum(y[r]));
		if (lane == r && first + r < rows) {
			out[first + r] = args.glu != 0 ? weight * swiglu(out[first + r], yr, args.clamp) : yr;
		}
	}
}

// expert_sum: out[t] is the sum of w[e]·in[slot] over the slots of token t in their order,
// and of a row of plus, with the bits of expert_gemv and sum_slots: a slot that is not
// computed adds a zero. A simdgroup computes R rows of all slots of a token, one slot after
// the other, so R is half of what it is in expert_gemv to occupy as many simdgroups as
// gate and up do. Grid: [tiles of 4*R rows][tokens]. Reads the matrices of the local
// experts once per slot and 4*cols bytes of the input per R rows, the latter from the
// caches; writes out once.
template <typename T, int R>
kernel void expert_sum(constant rmg_experts &args [[buffer(0)]],
                       device float *out [[buffer(1)]],           // [slots/share][rows]
                       device const float *in [[buffer(2)]],      // [slots][cols]
                       device const int *offsets [[buffer(3)]],   // [experts+1]
                       device const int *slots [[buffer(4)]],     // [slots]
                       device const float *weights [[buffer(5)]], // [slots]
                       device const uchar *w [[buffer(6)]],       // the only view
                       device atomic_uint *fault [[buffer(7)]],
                       device const float *scales [[buffer(8)]],  // view, if args.w.scale >= 0
                       device const float *plus [[buffer(9)]],    // [slots/share][rows], with args.plus
                       uint2 group [[threadgroup_position_in_grid]],
                       ushort simdgroup [[simdgroup_index_in_threadgroup]],
                       ushort lane [[thread_index_in_simdgroup]]) {
	const uint rows = args.rows, cols = args.cols, first = (group.x * SIMDGROUPS + simdgroup) * R;
	if (first >= rows) return;
	float sum[R];
	for (uint i = 0; i < args.share; i++) {
		const int slot = int(group.y * args.share + i), place = place_of(args, offsets, slots, slot, lane, fault);
		float y[R];
		for (ushort r = 0; r < R; r++) y[r] = 0;
		if (weights[slot] != 0 && place >= 0 && place >= offsets[args.low] && place < offsets[args.high]) {
			const int e = expert_at(args, offsets, uint(place), lane);
			device const uchar *matrix = matrix_of(args.w, w, e);
			device const float *x = in + ulong(slot) * cols;
			for (uint k = lane; 16 * k < cols; k += 32) {
				float v[16];
				input(x, k, cols, args.vectors != 0, v);
				const float total = T::MINIMA ? total_of(v) : 0;
				for (ushort r = 0; r < R; r++) {
					y[r] += product<T>(matrix + ulong(min(first + r, rows - 1)) * args.w.row_bytes, k, cols, v, total);
				}
			}
			for (ushort r = 0; r < R; r++) y[r] = scaled(args.w, scales, e, simd_sum(y[r]));
		}
		for (ushort r = 0; r < R; r++) sum[r] = i == 0 ? y[r] : sum[r] + y[r]; // 0 + -0 would not be -0
	}
	for (ushort r = 0; r < R; r++) {
		const ulong at = ulong(group.y) * rows + first + r;
		if (lane == r && first + r < rows) out[at] = args.plus != 0 ? sum[r] + plus[at] : sum[r];
	}
}

#define EXPERT_GATE_UP(T) INSTANCE(expert_gate_up_##T, expert_gate_up<T, 2>)
EACH_TYPE(EXPERT_GATE_UP)

#define EXPERT_GEMV(T) INSTANCE(expert_gemv_##T, expert_gemv<T, 4>)
EACH_TYPE(EXPERT_GEMV)

#define EXPERT_SUM(T) INSTANCE(expert_sum_##T, expert_sum<T, 2>)
EACH_TYPE(EXPERT_SUM)
