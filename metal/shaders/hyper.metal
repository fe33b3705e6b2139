// Hyper-connections: see kernels.HCMixArgs.

// copy_streams copies element i (a V) of a row of n elements to all streams.
template <typename V>
inline void copy_streams(device float *h, device const float *x, uint streams, uint n, uint i) {
	if (i >= n) return;
	const V v = ((device const V *)x)[i];
	for (uint s = 0; s < streams; s++) ((device V *)h)[s * ulong(n) + i] = v;
}

// hc_init: h[t][s] = x[t]. One thread per float4 (or float) writes all streams.
// Per column: reads 4 bytes, writes 4*streams. Grid: [columns][rows].
kernel void hc_init(constant rmg_hc_streams &args [[buffer(0)]],
                    device float *h [[buffer(1)]],       // [rows][streams][cols]
                    device const float *x [[buffer(2)]], // [rows][cols]
                    uint2 at [[thread_position_in_grid]]) {
	const uint cols = uint(args.cols), streams = uint(args.streams);
	x += ulong(at.y) * cols;
	h += ulong(at.y) * streams * cols;
	if (args.vectors) {
		copy_streams<float4>(h, x, streams, cols / 4, at.x);
	} else {
		copy_streams<float>(h, x, streams, cols, at.x);
	}
}

// collapsed is the weighted sum over the streams of element i (a V).
template <typename V, typename W>
inline V collapsed(device const float *h, W w, uint streams, uint n, uint i) {
	V sum = w[0] * ((device const V *)h)[i];
	for (uint s = 1; s < streams; s++) sum = fma(V(w[s]), ((device const V *)h)[s * ulong(n) + i], sum);
	return sum;
}

// hc_collapse: out[t] = sum_s pre[t][s]*h[t][s]. One thread per float4
// (or float). Per column: reads 4*streams bytes, writes 4. Grid: [columns][rows].
kernel void hc_collapse(constant rmg_hc_streams &args [[buffer(0)]],
                        device float *out [[buffer(1)]],       // [rows][cols]
                        device const float *h [[buffer(2)]],   // [rows][streams][cols]
                        device const float *pre [[buffer(3)]], // [rows][streams]
                        uint2 at [[thread_position_in_grid]]) {
	const uint cols = uint(args.cols), streams = uint(args.streams);
	out += ulong(at.y) * cols;
	h += ulong(at.y) * streams * cols;
	pre += at.y * streams;
	if (args.vectors) {
		if (at.x < cols / 4) ((device float4 *)out)[at.x] = collapsed<float4>(h, pre, streams, cols / 4, at.x);
	} else if (at.x < cols) {
		out[at.x] = collapsed<float>(h, pre, streams, cols, at.x);
	}
}

// expand mixes element i (a V) of S streams in place; S == 0 means `streams`.
template <typename V, ushort S>
inline void expand(device float *row, device const float *y, device const float *post, device const float *comb,
                   uint streams, uint n, uint i) {
	if (i >= n) return;
	const uint count = S > 0 ? uint(S) : streams;
	device V *h = (device V *)row;
	const V v = ((device const V *)y)[i];
	V old[S > 0 ? S : RMG_HC_STREAMS];
	for (uint s = 0; s < count; s++) old[s] = h[s * ulong(n) + i];
	for (uint j = 0; j < count; j++) {
		V sum = post[j] * v;
		for (uint s = 0; s < count; s++) sum = fma(V(comb[s * count + j]), old[s], sum);
		h[j * ulong(n) + i] = sum;
	}
}

// hc_expand: h[t][j] = post[t][j]*y[t] + sum_i comb[t][i][j]*h[t][i], in place.
// One thread per float4 (or float) of all streams, so all are read before any is
// written. Per column: reads 4+4*streams bytes, writes 4*streams.
// Grid: [columns][rows].
kernel void hc_expand(constant rmg_hc_streams &args [[buffer(0)]],
                      device float *h [[buffer(1)]],          // [rows][streams][cols]
                      device const float *y [[buffer(2)]],    // [rows][cols]
                      device const float *post [[buffer(3)]], // [rows][streams]
                      device const float *comb [[buffer(4)]], // [rows][streams][streams]
                      uint2 at [[thread_position_in_grid]]) {
	const uint cols = uint(args.cols), streams = uint(args.streams);
	h += ulong(at.y) * streams * cols;
	y += ulong(at.y) * cols;
	post += at.y * streams;
	comb += at.y * streams * streams;
	if (args.vectors && streams == 4) {
		expand<float4, 4>(h, y, post, comb, streams, cols / 4, at.x);
	} else {
		expand<float, 0>(h, y, post, comb, streams, cols, at.x);
	}
}

// Element types of Fn. Its elements are naturally aligned.
struct f32 {
	static float one(device const uchar *row, uint k) { return ((device const float *)row)[k]; }
	static float4 four(device const uchar *row, uint k) { return *(device const float4 *)(row + 4 * k); }
};
struct f16 {
	static float one(device const uchar *row, uint k) { return float(((device const half *)row)[k]); }
	static float4 four(device const uchar *row, uint k) { return float4(*(device const half4 *)(row + 2 * k)); }
};
struct bf16 {
	static float one(device const uchar *row, uint k) { return as_type<float>(uint(((device const ushort *)row)[k]) << 16); }
	static float4 four(device const uchar *row, uint k) {
		return as_type<float4>(uint4(*(device const ushort4 *)(row + 2 * k)) << 16);
	}
};

// Columns of one stream: of T tokens in device memory, and of one token in threadgroup memory.
template <ushort T>
struct in_device {
	device const float *at[T];
	float one(ushort t, uint c) const { return at[t][c]; }
	float4 four(ushort t, uint c) const { return *(device const float4 *)(at[t] + c); }
};
struct in_threadgroup {
	threadgroup const float *at;
	float one(ushort, uint c) const { return at[c]; }
	float4 four(ushort, uint c) const { return *(threadgroup const float4 *)(at + c); }
};

// products accumulates a lane's part of the dot products of T tokens with F rows of Fn (at
// fn + w0[f]) over n columns of one stream, columns first to first + n of Fn: every 32nd
// float4, or every 32nd column.
template <typename W, ushort T, ushort F, typename X>
inline void products(thread float (&sum)[T][F], thread float (&squares)[T], thread const X &columns,
                     device const uchar *fn, thread const ulong (&w0)[F], uint first, uint n, bool vectors, uint lane) {
	if (vectors) {
		for (uint c = 4 * lane; c < n; c += 128) {
			float4 x[T];
			for (ushort t = 0; t < T; t++) {
				x[t] = columns.four(t, c);
				squares[t] = fma(x[t].x, x[t].x, fma(x[t].y, x[t].y, fma(x[t].z, x[t].z, fma(x[t].w, x[t].w, squares[t]))));
			}
			for (ushort f = 0; f < F; f++) {
				const float4 w = W::four(fn + w0[f], first + c);
				for (ushort t = 0; t < T; t++) {
					sum[t][f] = fma(w.x, x[t].x, fma(w.y, x[t].y, fma(w.z, x[t].z, fma(w.w, x[t].w, sum[t][f]))));
				}
			}
		}
		return;
	}
	for (uint c = lane; c < n; c += 32) {
		float x[T];
		for (ushort t = 0; t < T; t++) {
			x[t] = columns.one(t, c);
			squares[t] = fma(x[t], x[t], squares[t]);
		}
		for (ushort f = 0; f < F; f++) {
			const float w = W::one(fn + w0[f], first + c);
			for (ushort t = 0; t < T; t++) sum[t][f] = fma(w, x[t], sum[t][f]);
		}
	}
}

// hc_products computes the dot products of the flattened streams with the rows of
// Fn, and their sum of squares, per span of RMG_HC_SPAN columns of each stream:
// out[t][span][k] is the dot product with row k, followed by the sum of squares. One
// simdgroup takes T tokens, F rows of Fn and one span; the order of summation does not
// depend on T and F. Reads Fn once per T tokens and h once per F rows (from the
// cache after the first time). Grid: [spans][F rows, RMG_HC_SIMDGROUPS times][T tokens].
template <typename W, ushort T, ushort F>
kernel void hc_products(constant rmg_hc_products &args [[buffer(0)]],
                        device float *out [[buffer(1)]],        // [rows][spans][products+1]
                        device const float *h [[buffer(2)]],    // [rows][streams][cols]
                        device const uchar *data [[buffer(3)]], // [count] rows of Fn
                        uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	const uint k = (group.y * RMG_HC_SIMDGROUPS + simdgroup) * F, count = uint(args.count), rows = uint(args.rows);
	const uint t0 = group.z * T, span = group.x, streams = uint(args.streams), cols = uint(args.cols);
	if (k >= count) return;
	// Out of range, the last token or row is computed a second time and not stored.
	ulong w0[F];
	for (ushort f = 0; f < F; f++) w0[f] = args.shift + ulong(min(k + f, count - 1)) * args.row_bytes;
	float sum[T][F], squares[T];
	for (ushort t = 0; t < T; t++) {
		squares[t] = 0;
		for (ushort f = 0; f < F; f++) sum[t][f] = 0;
	}
	const uint begin = span * RMG_HC_SPAN, n = min(cols - begin, uint(RMG_HC_SPAN));
	for (uint s = 0; s < streams; s++) {
		in_device<T> x;
		for (ushort t = 0; t < T; t++) x.at[t] = h + (ulong(min(t0 + t, rows - 1)) * streams + s) * cols + begin;
		products<W, T, F>(sum, squares, x, data, w0, s * cols + begin, n, args.vectors, lane);
	}
	const uint products = uint(args.products);
	for (ushort t = 0; t < T; t++) {
		device float *row = out + (ulong(t0 + t) * args.spans + span) * (products + 1);
		for (ushort f = 0; f < F; f++) {
			const float s = simd_sum(sum[t][f]);
			if (lane == 0 && t0 + t < rows && k + f < count) row[args.first + k + f] = s;
		}
		const float s = simd_sum(squares[t]);
		if (lane == 0 && t0 + t < rows && args.first + k == 0) row[products] = s;
	}
}

#define HC_PRODUCTS(name, ...) template [[host_name(#name)]] kernel decltype(__VA_ARGS__) __VA_ARGS__;
HC_PRODUCTS(hc_products_f32_1, hc_products<f32, 1, 2>)
HC_PRODUCTS(hc_products_f32_4, hc_products<f32, 4, 4>)
HC_PRODUCTS(hc_products_f16_1, hc_products<f16, 1, 2>)
HC_PRODUCTS(hc_products_f16_4, hc_products<f16, 4, 4>)
HC_PRODUCTS(hc_products_bf16_1, hc_products<bf16, 1, 2>)
HC_PRODUCTS(hc_products_bf16_4, hc_products<bf16, 4, 4>)

// hc_expand_products is hc_expand of a span of columns and then hc_products, with the
// same order of summation. One threadgroup takes all rows of Fn, so that no other reads the
// columns that it changes; a thread expands one column, then a simdgroup takes 3 rows of
// Fn at a time. Reads Fn once per token. Grid: [spans][1][tokens].
template <typename W>
kernel void hc_expand_products(constant rmg_hc_products &args [[buffer(0)]],
                               device float *out [[buffer(1)]],        // [rows][spans][products+1]
                               device float *h [[buffer(2)]],          // [rows][streams][cols]
                               device const uchar *data [[buffer(3)]], // [products] rows of Fn
                               device const float *y [[buffer(4)]],    // [rows][cols]
                               device const float *post [[buffer(5)]], // [rows][streams]
                               device const float *comb [[buffer(6)]], // [rows][streams][streams]
                               uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                               uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float4 tile[RMG_HC_EXPAND_STREAMS * RMG_HC_SPAN / 4]; // [streams][RMG_HC_SPAN]
	threadgroup float *wide = (threadgroup float *)tile;
	const uint streams = uint(args.streams), cols = uint(args.cols), row = group.z, begin = group.x * RMG_HC_SPAN;
	const uint n = min(cols - begin, uint(RMG_HC_SPAN)), c = simdgroup * 32 + lane;
	h += ulong(row) * streams * cols + begin;
	if (c < n) {
		post += row * streams;
		comb += row * streams * streams;
		const float v = y[ulong(row) * cols + begin + c];
		float old[RMG_HC_EXPAND_STREAMS];
		for (uint s = 0; s < streams; s++) old[s] = h[ulong(s) * cols + c];
		for (uint j = 0; j < streams; j++) {
			float sum = post[j] * v;
			for (uint s = 0; s < streams; s++) sum = fma(comb[s * streams + j], old[s], sum);
			h[ulong(j) * cols + c] = sum;
			wide[j * RMG_HC_SPAN + c] = sum;
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const ushort F = 3;
	const uint count = uint(args.count), products_of = uint(args.products);
	out += (ulong(row) * args.spans + group.x) * (products_of + 1);
	for (uint k = simdgroup * F; k < count; k += F * RMG_HC_EXPAND_SIMDGROUPS) {
		ulong w0[F];
		float sum[1][F], squares[1] = {0};
		for (ushort f = 0; f < F; f++) {
			w0[f] = args.shift + ulong(min(k + f, count - 1)) * args.row_bytes;
			sum[0][f] = 0;
		}
		for (uint s = 0; s < streams; s++) {
			in_threadgroup x;
			x.at = wide + s * RMG_HC_SPAN;
			products<W, 1, F>(sum, squares, x, data, w0, s * cols + begin, n, args.vectors, lane);
		}
		for (ushort f = 0; f < F; f++) {
			const float s = simd_sum(sum[0][f]);
			if (lane == 0 && k + f < count) out[args.first + k + f] = s;
		}
		const float s = simd_sum(squares[0]);
		if (lane == 0 && k == 0) out[products_of] = s;
	}
}

HC_PRODUCTS(hc_expand_products_f32, hc_expand_products<f32>)
HC_PRODUCTS(hc_expand_products_f16, hc_expand_products<f16>)
HC_PRODUCTS(hc_expand_products_bf16, hc_expand_products<bf16>)

// product is the dot product with row k: the sum over its spans, in order.
inline float product(device const float *parts, uint k, uint products, uint spans) {
	float sum = 0;
	for (uint i = 0; i < spans; i++) sum += parts[ulong(i) * (products + 1) + k];
	return sum;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }

inline float square(float v) { return v * v; }
inline float square(float4 v) { return dot(v, v); }

// collapse_row collapses the streams of one row and norms the sum, in elements of type V,
// float4 or float. All threads of the group call it.
template <typename V>
inline void collapse_row(constant rmg_hc &args, device float *out, device const float *h, threadgroup const float *weights,
                         device const float *norm, threadgroup float *partial, uint t, uint threads, uint lane,
                         uint simdgroup) {
	const uint n = uint(args.cols) * sizeof(float) / sizeof(V);
	device V *x = (device V *)out;
	float sum = 0;
	for (uint i = t; i < n; i += threads) {
		const V v = collapsed<V>(h, weights, uint(args.streams), n, i);
		x[i] = v;
		sum += square(v);
	}
	sum = group_sum(sum, partial, lane, simdgroup, threads / 32);
	const float scale = 1.0f / precise::sqrt(sum / float(args.cols) + args.rms_eps);
	for (uint i = t; i < n; i += threads) { // a thread reads only elements that it has written
		const V v = x[i] * scale;
		x[i] = v * ((device const V *)norm)[i];
	}
}

// sinkhorn normalizes c [s][s] in threadgroup memory to comb, by one simdgroup.
inline void sinkhorn(constant rmg_hc &args, threadgroup float *c, device float *comb, uint lane) {
	const uint s = uint(args.streams);
	if (lane < s) {
		threadgroup float *line = c + lane * s;
		float most = line[0], sum = 0;
		for (uint j = 1; j < s; j++) most = max(most, line[j]);
		for (uint j = 0; j < s; j++) sum += line[j] = precise::exp(line[j] - most);
		for (uint j = 0; j < s; j++) line[j] = line[j] / sum + args.eps;
	}
	for (int n = 0; n < args.iterations; n++) {
		if (n > 0 && lane < s) {
			threadgroup float *line = c + lane * s;
			float sum = args.eps;
			for (uint j = 0; j < s; j++) sum += line[j];
			for (uint j = 0; j < s; j++) line[j] /= sum;
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (lane < s) {
			float sum = args.eps;
			for (uint i = 0; i < s; i++) sum += c[i * s + lane];
			for (uint i = 0; i < s; i++) c[i * s + lane] /= sum;
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
	}
	for (uint k = lane; k < s * s; k += 32) comb[k] = c[k];
}

// hc_mix derives the mixing coefficients of one row and the input of the sub-layer: see
// kernels.HCMixArgs. One threadgroup per row. Its first simdgroup derives the coefficients; in
// a Sinkhorn iteration lane i normalizes row i of Comb, then column i, in threadgroup memory,
// with a simdgroup barrier in between. float32 is enough: every iteration normalizes again, so
// errors do not accumulate. The other simdgroups begin to collapse meanwhile. Reads
// 4*(products+1)*spans bytes per row, and 4*(streams+1) per column; writes 4 per column.
kernel void hc_mix(constant rmg_hc &args [[buffer(0)]],
                   device const float *parts [[buffer(1)]], // [rows][spans][products+1]
                   device const float *base [[buffer(2)]],  // [products]
                   device const float *scale [[buffer(3)]], // [3]
                   device float *pre [[buffer(4)]],         // [rows][streams]
                   device float *post [[buffer(5)]],        // [rows][streams]
                   device float *comb [[buffer(6)]],        // [rows][streams][streams]
                   device float *x [[buffer(7)]],           // [rows][cols]
                   device const float *h [[buffer(8)]],     // [rows][streams][cols]
                   device const float *other [[buffer(9)]], // [rows][streams], weights of the streams, or none
                   device const float *norm [[buffer(10)]], // [cols]
                   uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float mixed[(2 + RMG_HC_STREAMS) * RMG_HC_STREAMS + 1], weights[RMG_HC_STREAMS], partial[32];
	const uint s = uint(args.streams), products = uint(args.products), spans = uint(args.spans);
	parts += ulong(row) * spans * (products + 1);
	if (simdgroup == 0) {
		for (uint k = lane; k <= products; k += 32) mixed[k] = product(parts, k, products, spans);
		simdgroup_barrier(mem_flags::mem_threadgroup);
		const float r = 1.0f / precise::sqrt(mixed[products] / float(s * uint(args.cols)) + args.rms_eps);
		simdgroup_barrier(mem_flags::mem_threadgroup);
		for (uint k = lane; k < products; k += 32) {
			mixed[k] = fma(r * mixed[k], scale[k < s ? 0 : k < 2 * s ? 1 : 2], base[k]);
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (lane < s) {
			const float before = sigmoid(mixed[lane]) + args.eps;
			weights[lane] = args.own ? before : other[row * s + lane];
			pre[row * s + lane] = before;
			post[row * s + lane] = 2.0f * sigmoid(mixed[s + lane]);
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (simdgroup == 0) sinkhorn(args, mixed + 2 * s, comb + ulong(row) * s * s, lane);
	h += ulong(row) * s * args.cols;
	x += ulong(row) * args.cols;
	if (args.vectors) {
		collapse_row<float4>(args, x, h, weights, norm, partial, t, threads, lane, simdgroup);
	} else {
		collapse_row<float>(args, x, h, weights, norm, partial, t, threads, lane, simdgroup);
	}
}

// hc_head collapses the streams with weights derived from the products. Every
// threadgroup derives the weights of its row itself: they are few. Per column:
// reads 4*streams bytes, writes 4. Grid: [columns][rows].
kernel void hc_head(constant rmg_hc &args [[buffer(0)]],
                    device float *out [[buffer(1)]],         // [rows][cols]
                    device const float *h [[buffer(2)]],     // [rows][streams][cols]
                    device const float *parts [[buffer(3)]], // [rows][spans][streams+1]
                    device const float *base [[buffer(4)]],  // [streams]
                    device const float *scale [[buffer(5)]], // [1]
                    uint2 at [[thread_position_in_grid]], uint2 thread_index [[thread_position_in_threadgroup]]) {
	threadgroup float mixed[RMG_HC_STREAMS + 1], weights[RMG_HC_STREAMS];
	const uint s = uint(args.streams), cols = uint(args.cols), spans = uint(args.spans), t = thread_index.x;
	parts += ulong(at.y) * spans * (s + 1);
	if (t <= s) mixed[t] = product(parts, t, s, spans);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (t < s) {
		const float r = 1.0f / precise::sqrt(mixed[s] / float(s * cols) + args.rms_eps);
		weights[t] = sigmoid(fma(r * mixed[t], scale[0], base[t])) + args.eps;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	h += ulong(at.y) * s * cols;
	if (at.x < cols) {
		threadgroup const float *w = weights;
		out[ulong(at.y) * cols + at.x] = collapsed<float>(h, w, s, cols, at.x);
	}
}

// hc_gate adds the gated value to one stream of one row: see kernels.HCGateArgs. One
// threadgroup per stream and row; its threads stride over the columns, once for the three
// sums and once to add. Per column: reads 24 bytes, writes 4. Grid: [streams][rows].
kernel void hc_gate(constant rmg_hc_gate &args [[buffer(0)]],
                    device float *h [[buffer(1)]],              // [rows][streams][cols]
                    device const float *kv [[buffer(2)]],       // [rows][streams+1][cols]
                    device const float *h_norm [[buffer(3)]],   // [streams][cols]
                    device const float *key_norm [[buffer(4)]], // [streams][cols]
                    uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
	threadgroup float partial[3 * RMG_HC_GATE_SIMDGROUPS];
	const uint cols = uint(args.cols), streams = uint(args.streams), s = group.x, t = simdgroup * 32 + lane;
	const uint threads = 32 * RMG_HC_GATE_SIMDGROUPS;
	h += (ulong(group.y) * streams + s) * cols;
	kv += ulong(group.y) * (streams + 1) * cols;
	device const float *key = kv + ulong(s) * cols, *value = kv + ulong(streams) * cols;
	h_norm += ulong(s) * cols;
	key_norm += ulong(s) * cols;
	float squares = 0, key_squares = 0, product = 0;
	for (uint c = t; c < cols; c += threads) {
		squares = fma(h[c], h[c], squares);
		key_squares = fma(key[c], key[c], key_squares);
		product = fma(key[c] * key_norm[c], h[c] * h_norm[c], product);
	}
	squares = simd_sum(squares);
	key_squares = simd_sum(key_squares);
	product = simd_sum(product);
	if (lane == 0) {
		partial[3 * simdgroup] = squares;
		partial[3 * simdgroup + 1] = key_squares;
		partial[3 * simdgroup + 2] = product;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	squares = key_squares = product = 0;
	for (uint i = 0; i < RMG_HC_GATE_SIMDGROUPS; i++) {
		squares += partial[3 * i];
		key_squares += partial[3 * i + 1];
		product += partial[3 * i + 2];
	}
	const float r = 1.0f / precise::sqrt(squares / float(cols) + args.eps);
	const float key_r = 1.0f / precise::sqrt(key_squares / float(cols) + args.eps);
	const float d = product * r * key_r / precise::sqrt(float(cols));
	const float root = precise::sqrt(max(fabs(d), 1e-6f));
	const float gate = sigmoid(d < 0 ? -root : root);
	for (uint c = t; c < cols; c += threads) h[c] = fma(gate, value[c], h[c]);
}
