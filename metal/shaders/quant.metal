// Decoders of weights: one struct for each type of package gguf, after the block
// layouts of GGML (ggml-common.h). decode gives the 16 weights from element 16*i
// of a row on, in float32. A row may begin at any byte.

// bytes_at reads a little-endian number from any address.
inline ushort load16(device const uchar *p) { return ushort(p[0] | p[1] << 8); }
inline uint load32(device const uchar *p) { return uint(load16(p)) | uint(load16(p + 2)) << 16; }
inline float half_at(device const uchar *p) { return float(as_type<half>(load16(p))); }

struct f32 {
	static void decode(device const uchar *row, uint i, thread float (&w)[16]) {
		row += 64 * ulong(i);
		for (ushort k = 0; k < 16; k++) w[k] = as_type<float>(load32(row + 4 * k));
	}
};

struct f16 {
	static void decode(device const uchar *row, uint i, thread float (&w)[16]) {
		row += 32 * ulong(i);
		for (ushort k = 0; k < 16; k++) w[k] = half_at(row + 2 * k);
	}
};

struct q8_0 {
	static void decode(device const uchar *row, uint i, thread float (&w)[16]) {
		row += 34 * ulong(i / 2);
		const float d = half_at(row);
		row += 2 + 16 * (i % 2);
		for (ushort k = 0; k < 16; k++) w[k] = d * float(as_type<char>(row[k]));
	}
};

// EACH_TYPE(X) is X(type) for every decoder.
#define EACH_TYPE(X) X(f32) X(f16) X(q8_0)
