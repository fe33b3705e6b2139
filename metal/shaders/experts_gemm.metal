// GEMM of the routed experts, for many slots per expert, in tiles of 8x8 matrices.

// A tile is SLOTS slots of one expert by ROWS rows of its matrix, accumulated over
// STEP columns at a time. Rows in threadgroup memory are padded, so that the eight
// rows of a fragment do not all start in the same bank.
enum { ROWS = 64, SLOTS = 32, STEP = 32, PITCH = STEP + 4, OUT_PITCH = ROWS + 4 };

// expert_gemm: out[slot] = w[e]·in, or with glu out[slot] =
// weight * swiglu(out[slot], w[e]·in). Grid: [tiles of rows][tiles of
// slots], then threadgroups that clear rows. The number of tiles of slots is only
// known on the device: the grid has the maximum, and a threadgroup finds its tile
// from the offsets or exits.
//
// 128 threads. In each step they decode ROWS*STEP weights into threadgroup memory
// (thread t half a row), gather SLOTS*STEP elements of the input (thread t eight
// columns of slot t/4), and multiply: a simdgroup has all slots by 16 rows, eight
// fragments, and skips those without slots. Reads the matrices of the
// local experts once per 32 slots and 4*cols bytes of the input per slot and 64
// rows, the latter from the caches; writes out once (with glu, reads it as well).
// Threadgroup memory: expertGEMMMemory bytes (ops_experts.go).
template <typename T>
kernel void expert_gemm(constant rmg_experts &args [[buffer(0)]],
                        device float *out [[buffer(1)]],           // [slots][rows]
                        device const float *in [[buffer(2)]],      // [slots/share][cols]
                        device const int *offsets [[buffer(3)]],   // [experts+1]
                        device const int *slots [[buffer(4)]],     // [slots]
                        device const float *weights [[buffer(5)]], // [slots]
                        device const uchar *w [[buffer(6)]],       // view
                        device atomic_uint *fault [[buffer(7)]],
                        device const float *scales [[buffer(8)]],  // view, if args.w.scale >= 0
                        threadgroup float *shared [[threadgroup(0)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint2 groups [[threadgroups_per_grid]],
                        ushort simdgroup [[simdgroup_index_in_threadgroup]],
                        ushort lane [[thread_index_in_simdgroup]]) {
	const uint t = simdgroup * 32 + lane, rows = args.rows, cols = args.cols;
	if (group.y >= args.places) {
		set_zero(args, out, offsets, slots, weights, fault, (group.y - args.places) * groups.x + group.x, t, 128, lane);
		return;
	}

	// Find the tile of slots: lane by lane, the number of tiles up to an expert.
	int e = -1, at = 0;
	uint before = 0;
	for (int from = args.low; from < args.high; from += 32) {
		const int k = from + lane;
		const int count = k < args.high ? max(offsets[k + 1] - offsets[k], 0) : 0;
		const uint tiles = uint(count + SLOTS - 1) / SLOTS, upto = before + simd_prefix_inclusive_sum(tiles);
		const ushort skip = ushort(simd_sum(upto <= group.y ? 1 : 0));
		if (skip < 32) {
			e = from + skip;
			at = int(group.y - simd_shuffle(upto - tiles, skip)) * SLOTS;
			break;
		}
		before = simd_shuffle(upto, 31);
	}
	if (e < 0) return;

	// Its slots, one per lane; -1 for those that are not computed.
	const int n = min(int(SLOTS), offsets[e + 1] - offsets[e] - at);
	int slot = lane < n ? slot_at(args, offsets, slots, uint(offsets[e] + at + lane), fault) : -1;
	if (slot >= 0 && weights[slot] == 0) slot = -1;
	if (!simd_any(slot >= 0)) return;
	threadgroup float *wt = shared;                                  // [ROWS][PITCH]
	threadgroup float *xt = wt + ROWS * PITCH;                       // [SLOTS][PITCH]
	threadgroup float *yt = shared;                                  // [SLOTS][OUT_PITCH], after the last step
	threadgroup int *who = (threadgroup int *)(xt + SLOTS * PITCH); // [SLOTS]
	if (simdgroup == 0) who[lane] = slot;

	const uint row = group.x * ROWS + t / 2; // that this thread decodes
	device const uchar *matrix = matrix_of(args.w, w, e) + ulong(min(row, rows - 1)) * args.w.row_bytes;
	const int source = simd_shuffle(slot, ushort(t / 4)); // the slot of the input that it gathers
	device const float *x = in + (source < 0 ? 0 : ulong(uint(source) / args.share) * cols);
	threadgroup float4 *w_to = (threadgroup float4 *)(wt + t / 2 * PITCH + t % 2 * 16);
	threadgroup float4 *x_to = (threadgroup float4 *)(xt + t / 4 * PITCH + t % 4 * 8);

	const short fragments = short((n + 7) / 8);
	simdgroup_float8x8 y[4][2];
	for (short f = 0; f < 4; f++) {
		for (short j = 0; j < 2; j++) y[f][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
	}
	for (uint from = 0; from < cols; from += STEP) {
		float a[16];
		const uint chunk = from / 16 + t % 2, col = from + t % 4 * 8;
		if (row < rows && 16 * chunk < cols) {
			T::decode_to(matrix, chunk, cols, a);
		} else {
			for (ushort k = 0; k < 16; k++) a[k] = 0;
		}
		float4 b[2];
		for (ushort k = 0; k < 2; k++) {
			const uint c = col + 4 * k;
			b[k] = float4(0.0f);
			if (source < 0) continue;
			if (args.vectors != 0) { // then cols is a multiple of 4
				if (c < cols) b[k] = *(device const float4 *)(x + c);
			} else {
				for (ushort j = 0; j < 4; j++) b[k][j] = c + j < cols ? x[c + j] : 0.0f;
			}
		}
		threadgroup_barrier(mem_flags::mem_threadgroup); // the panels of the previous step have been read
		for (ushort k = 0; k < 4; k++) w_to[k] = float4(a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]);
		for (ushort k = 0; k < 2; k++) x_to[k] = b[k];
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (short k = 0; k < STEP; k += 8) {
			simdgroup_float8x8 wf[2];
			for (short j = 0; j < 2; j++) {
				simdgroup_load(wf[j], wt + (16 * simdgroup + 8 * j) * PITCH + k, PITCH, ulong2(0, 0), true);
			}
			for (short f = 0; f < 4; f++) {
				if (f >= fragments) break;
				simdgroup_float8x8 xf;
				simdgroup_load(xf, xt + 8 * f * PITCH + k, PITCH);
				for (short j = 0; j < 2; j++) simdgroup_multiply_accumulate(y[f][j], xf, wf[j], y[f][j]);
			}
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (short f = 0; f < 4; f++) {
		for (short j = 0; j < 2; j++) simdgroup_store(y[f][j], yt + 8 * f * OUT_PITCH + 16 * simdgroup + 8 * j, OUT_PITCH);
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = t; i < uint(n) * ROWS; i += 128) {
		const uint r = group.x * ROWS + i % ROWS;
		const int s = who[i / ROWS];
		if (s < 0 || r >= rows) continue;
		device float *to = out + ulong(s) * rows + r;
		const float v = scaled(args.w, scales, e, yt[i / ROWS * OUT_PITCH + i % ROWS]);
		*to = args.glu != 0 ? weights[s] * swiglu(*to, v, args.clamp) : v;
	}
}

#define EXPERT_GEMM(T) INSTANCE(expert_gemm_##T, expert_gemm<T>)
EACH_TYPE(EXPERT_GEMM)
