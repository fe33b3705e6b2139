// Embed: see kernels.Backend.

// embed: out[t] = row ids[t] of the matrix, as float32. Rows outside this view are
// left to the dispatches of other views. One thread decodes one chunk of 16
// weights. Grid: [chunks][tokens]. Reads the rows once, writes 4 bytes per weight.
template <typename T>
kernel void embed(constant rmg_embed &args [[buffer(0)]],
                  device float *out [[buffer(1)]],          // [tokens][cols]
                  device const int *ids [[buffer(2)]],      // [tokens]
                  device const uchar *data [[buffer(3)]],   // [count] rows
                  device atomic_uint *fault [[buffer(4)]],
                  uint2 at [[thread_position_in_grid]]) {
	const uint i = at.x, cols = uint(args.cols);
	if (16 * i >= cols) return;
	const int id = ids[at.y];
	if (id < 0 || id >= args.rows) {
		report(fault, FAULT_ROW);
		return;
	}
	if (id < args.first || id >= args.first + args.count) return;
	float w[16];
	T::decode_to(data + args.shift + ulong(id - args.first) * args.row_bytes, i, cols, w);
	out += ulong(at.y) * cols + 16 * i;
	const uint n = min(16u, cols - 16 * i);
	for (uint k = 0; k < n; k++) out[k] = w[k];
}

#define EMBED(T) INSTANCE(embed_##T, embed<T>)
EACH_TYPE(EMBED)
