// Decoders of weights: one struct for each type of package gguf. The comments of that
// package have the layouts of the blocks (after GGML, ggml-common.h).
//
// A row is divided into chunks of 16 weights. Every type represents the weights of
// a chunk as w = scale * q - least:
//
//	float quants(row, i, q, least)  q of chunk i, least, and scale as result
//	void  decode(row, i, w)         the weights of chunk i, those of
//	                                gguf.Dequantize bit for bit, but for the
//	                                sign of the second zero of MXFP4 and NVFP4
//	void  decode_to(row, i, n, w)   decode, for a row of n weights: those
//	                                beyond the row are 0
//
// Products use quants: scale multiplies the sum of q*x, and least the sum of x,
// which all rows of weights share. MINIMA: least is not always 0. PLAIN: the type
// is not blocked, rows have any length and element(row, k) is one weight.
//
// Blocks are aligned to the largest power of two up to 4 that divides their length:
// see grain in quant.go.

// Loads of 2, 4 and 16 bytes. p is aligned to 2 unless the name says otherwise. A
// load instruction takes up to four elements of the size that p is aligned to.
inline ushort load2(device const uchar *p) { return *(device const ushort *)p; }
inline uint load4(device const uchar *p) { return as_type<uint>(ushort2(*(device const packed_ushort2 *)p)); }
inline uint4 load16(device const uchar *p) {
	device const packed_ushort4 *v = (device const packed_ushort4 *)p;
	return uint4(as_type<uint2>(ushort4(v[0])), as_type<uint2>(ushort4(v[1])));
}
inline uint4 load16_aligned4(device const uchar *p) { return uint4(*(device const packed_uint4 *)p); }
inline uint4 load16_aligned1(device const uchar *p) {
	device const packed_uchar4 *v = (device const packed_uchar4 *)p;
	return uint4(as_type<uint>(uchar4(v[0])), as_type<uint>(uchar4(v[1])), as_type<uint>(uchar4(v[2])), as_type<uint>(uchar4(v[3])));
}
inline float half_at(device const uchar *p) { return float(as_type<half>(load2(p))); }

// Integers are converted to floats by placing them in the mantissa of a float with
// a suitable exponent and subtracting that power of two: a mask, an or and a
// subtraction, exact. Bit extraction and integer conversion each take four times
// as long on Apple's GPUs. Masks and exponents depend on i % 16 alone, which is
// constant in the loops of products.

// fields extracts the bits of mask, shifted left by p, from each byte of v, and
// subtracts `offset`. The shifted mask fits in a byte.
inline void fields(uint4 v, uint mask, uint p, float offset, thread float *q) {
	const uint m0 = mask << p, m1 = m0 << 8, e0 = (150 - p) << 23, e1 = (142 - p) << 23;
	const float b0 = as_type<float>(e0) + offset, b1 = as_type<float>(e1) + offset;
	for (ushort k = 0; k < 8; k++) {
		const uint two = as_type<ushort2>(v[k / 2])[k % 2];
		q[2 * k] = as_type<float>((two & m0) | e0) - b0;
		q[2 * k + 1] = as_type<float>((two & m1) | e1) - b1;
	}
}

// add_fields adds such bits of each byte of v, times 2^up.
inline void add_fields(uint4 v, uint mask, uint p, uint up, thread float *q) {
	const uint m0 = mask << p, m1 = m0 << 8, e0 = (150 - p + up) << 23, e1 = (142 - p + up) << 23;
	for (ushort k = 0; k < 8; k++) {
		const uint two = as_type<ushort2>(v[k / 2])[k % 2];
		q[2 * k] += as_type<float>((two & m0) | e0) - as_type<float>(e0);
		q[2 * k + 1] += as_type<float>((two & m1) | e1) - as_type<float>(e1);
	}
}

// decoded implements decode by quants. Products and differences are rounded
// separately, as on the host.
template <typename T> struct decoded {
	static void decode(device const uchar *row, uint i, thread float (&w)[16]) {
#if __METAL_VERSION__ >= 320
#pragma METAL fp contract(off)
#endif
		float least;
		const float scale = T::quants(row, i, w, least);
		for (ushort k = 0; k < 16; k++) {
			const float y = scale * w[k];
			w[k] = T::MINIMA ? y - least : y;
		}
	}
};

// Blocked types. Rows are a multiple of a chunk.
template <typename T> struct blocks : decoded<T> {
	enum { PLAIN = 0 };
	static float element(device const uchar *, uint) { return 0; }
	static void decode_to(device const uchar *row, uint i, uint, thread float (&w)[16]) { decoded<T>::decode(row, i, w); }
};

// Unblocked types. T has element, and quad(row, j) for elements [4*j, 4*j+4).
template <typename T> struct plain : decoded<T> {
	enum { PLAIN = 1, MINIMA = 0 };
	static void decode(device const uchar *row, uint i, thread float (&w)[16]) {
		for (ushort k = 0; k < 4; k++) {
			const float4 v = T::quad(row, 4 * i + k);
			for (ushort j = 0; j < 4; j++) w[4 * k + j] = v[j];
		}
	}
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		decode(row, i, q);
		least = 0;
		return 1;
	}
	static void decode_to(device const uchar *row, uint i, uint n, thread float (&w)[16]) {
		for (uint k = 0; k < 16; k++) w[k] = 16 * i + k < n ? T::element(row, 16 * i + k) : 0;
	}
};

struct f32 : plain<f32> {
	static float element(device const uchar *row, uint k) { return ((device const float *)row)[k]; }
	static float4 quad(device const uchar *row, uint j) { return float4(((device const packed_float4 *)row)[j]); }
};

struct f16 : plain<f16> {
	static float element(device const uchar *row, uint k) { return float(((device const half *)row)[k]); }
	static float4 quad(device const uchar *row, uint j) { return float4(half4(((device const packed_half4 *)row)[j])); }
};

struct bf16 : plain<bf16> {
	static float element(device const uchar *row, uint k) { return as_type<float>(uint(((device const ushort *)row)[k]) << 16); }
	static float4 quad(device const uchar *row, uint j) {
		return as_type<float4>(uint4(ushort4(((device const packed_ushort4 *)row)[j])) << 16);
	}
};

struct q8_0 : blocks<q8_0> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 34 * ulong(i / 2), *p = s + 2 + 16 * (i % 2);
		fields(load16(p) ^ 0x80808080u, 255, 0, 128, q);
		least = 0;
		return half_at(s);
	}
};

struct q4_0 : blocks<q4_0> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 18 * ulong(i / 2);
		fields(load16(s + 2), 15, 4 * (i % 2), 8, q);
		least = 0;
		return half_at(s);
	}
};

struct q4_1 : blocks<q4_1> {
	enum { MINIMA = 1 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 20 * ulong(i / 2);
		fields(load16_aligned4(s + 4), 15, 4 * (i % 2), 0, q);
		least = -half_at(s + 2);
		return half_at(s);
	}
};

// fifth adds the fifth bits, bit k of h for q[k].
inline void fifth(uint h, thread float *q) {
	for (uint k = 0; k < 16; k++) {
		const uint e = (154 - k) << 23;
		q[k] += as_type<float>((h & 1u << k) | e) - as_type<float>(e);
	}
}

struct q5_0 : blocks<q5_0> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 22 * ulong(i / 2);
		fields(load16(s + 6), 15, 4 * (i % 2), 16, q);
		fifth(load2(s + 2 + 2 * (i % 2)), q);
		least = 0;
		return half_at(s);
	}
};

struct q5_1 : blocks<q5_1> {
	enum { MINIMA = 1 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 24 * ulong(i / 2);
		fields(load16_aligned4(s + 8), 15, 4 * (i % 2), 0, q);
		fifth(load2(s + 4 + 2 * (i % 2)), q);
		least = -half_at(s + 2);
		return half_at(s);
	}
};

// The values of MXFP4 and NVFP4 are those of four-bit floats, doubled. As bits of a half
// (one sign, two bits of exponent, one of mantissa) they are 2^15 times too
// small, with no case apart for the values below 1 of a half's exponents. That
// takes fewer operations than a table, and the table's loads would diverge.
// fp4_values gives the values of the low nibbles.
inline void fp4_values(uint4 v, thread float *q) {
	for (ushort k = 0; k < 4; k++) {
		const uint word = v[k];
		// Bytes 0 and 2, then 1 and 3, two halves at once.
		const half2 even = as_type<half2>((word & 0x00070007) << 9 | (word & 0x00080008) << 12) * half2(32768.0h);
		const half2 odd = as_type<half2>((word & 0x07000700) << 1 | (word & 0x08000800) << 4) * half2(32768.0h);
		q[4 * k] = float(even.x);
		q[4 * k + 1] = float(odd.x);
		q[4 * k + 2] = float(even.y);
		q[4 * k + 3] = float(odd.y);
	}
}

struct mxfp4 : blocks<mxfp4> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 17 * ulong(i / 2);
		fp4_values(load16_aligned1(s + 1) >> (4 * (i % 2)), q);
		least = 0;
		// 2^(e-128), subnormal for e of 0 and 1.
		const uint e = s[0];
		return as_type<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
	}
};

// A chunk of NVFP4 has its own scale. Its first eight weights are in the low nibbles.
struct nvfp4 : blocks<nvfp4> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 36 * ulong(i / 4);
		device const packed_uint2 *p = (device const packed_uint2 *)(s + 4 + 8 * (i % 4));
		const uint2 v = uint2(*p);
		fp4_values(uint4(v, v >> 4), q);
		least = 0;
		// (8+m) * 2^(x-11), m * 2^-10 without exponent x; the NaN 127 is 0 (gguf.NVFP4Scale).
		const uint e = s[i % 4], x = e >> 3 & 15, m = e & 7;
		if (e == 127) return 0;
		return x == 0 ? float(m) * 0.0009765625f : float(8 + m) * as_type<float>((x + 116) << 23);
	}
};

struct q2_k : blocks<q2_k> {
	enum { MINIMA = 1 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 84 * ulong(i / 16);
		const uint c = i % 16, sc = s[c];
		device const uchar *p = s + 16 + 32 * (c / 8) + 16 * (c % 2);
		fields(load16_aligned4(p), 3, 2 * (c / 2 % 4), 0, q);
		least = half_at(s + 82) * float(sc >> 4);
		return half_at(s + 80) * float(sc & 15);
	}
};

struct q3_k : blocks<q3_k> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 110 * ulong(i / 16);
		const uint c = i % 16;
		device const uchar *p = s + 32 + 32 * (c / 8) + 16 * (c % 2), *high = s + 16 * (c % 2);
		fields(load16(p), 3, 2 * (c / 2 % 4), 4, q);
		add_fields(load16(high), 1, c / 2, 2, q);
		device const uchar *scales = s + 96;
		const int sc = (scales[c % 8] >> (c / 8 * 4) & 15) | (scales[8 + c % 4] >> (2 * (c / 4)) & 3) << 4;
		least = 0;
		return half_at(s + 108) * float(sc - 32);
	}
};

// k4_scales gives the scale and the minimum of sub-block j of a block s of Q4_K
// or Q5_K.
inline float k4_scales(device const uchar *s, uint j, thread float &least) {
	device const uchar *p = s + 4 + j % 4;
	const uint a = p[0], b = p[4], c = p[8];
	const uint scale = j < 4 ? a & 63 : (c & 15) | a >> 6 << 4, minimum = j < 4 ? b & 63 : c >> 4 | b >> 6 << 4;
	least = half_at(s + 2) * float(minimum);
	return half_at(s) * float(scale);
}

struct q4_k : blocks<q4_k> {
	enum { MINIMA = 1 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 144 * ulong(i / 16);
		const uint c = i % 16, j = c / 2;
		device const uchar *p = s + 16 + 32 * (j / 2) + 16 * (c % 2);
		fields(load16_aligned4(p), 15, 4 * (j % 2), 0, q);
		return k4_scales(s, j, least);
	}
};

struct q5_k : blocks<q5_k> {
	enum { MINIMA = 1 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 176 * ulong(i / 16);
		const uint c = i % 16, j = c / 2;
		device const uchar *p = s + 48 + 32 * (j / 2) + 16 * (c % 2), *high = s + 16 + 16 * (c % 2);
		fields(load16_aligned4(p), 15, 4 * (j % 2), 0, q);
		add_fields(load16_aligned4(high), 1, j, 4, q);
		return k4_scales(s, j, least);
	}
};

struct q6_k : blocks<q6_k> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 210 * ulong(i / 16);
		const uint c = i % 16, h = c / 8, r = c / 2 % 4;
		device const uchar *p = s + 64 * h + 32 * (r % 2) + 16 * (c % 2), *high = s + 128 + 32 * h + 16 * (c % 2);
		fields(load16(p), 15, r / 2 * 4, 32, q);
		add_fields(load16(high), 3, 2 * r, 4, q);
		least = 0;
		return half_at(s + 208) * float(as_type<char>(s[192 + c]));
	}
};

// signed4 gives the elements of a word of a grid with signs. A byte of `signs` is
// 0x80 for plus and 0x7f for minus: v becomes v + 128, or 127 - v and 1 more.
inline uint signed4(uint word, uint signs) { return (word ^ signs) + (signs & 0x01010101u); }

// points8 gives two points of eight elements. The seven lowest bits of `signs` and
// the seven from bit 7 on choose the signs, the eighth makes their number even.
inline void points8(constant uint *p0, constant uint *p1, uint signs, thread float *q) {
	constant uint *s0 = even_signs + 2 * (signs & 127), *s1 = even_signs + 2 * (signs >> 7 & 127);
	fields(uint4(signed4(p0[0], s0[0]), signed4(p0[1], s0[1]), signed4(p1[0], s1[0]), signed4(p1[1], s1[1])), 255, 0, 128, q);
}

// points16 gives four words of a grid; bit k of mask negates element k.
inline void points16(uint4 v, uint mask, thread float *q) {
	for (ushort k = 0; k < 4; k++) v[k] = signed4(v[k], four_signs[mask >> (4 * k) & 15]);
	fields(v, 255, 0, 128, q);
}

struct iq2_xxs : blocks<iq2_xxs> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 66 * ulong(i / 16);
		device const uchar *group = s + 2 + 8 * (i % 16 / 2);
		const uint half_of = i % 2, index = load2(group + 2 * half_of), word = load4(group + 4), signs = word >> (14 * half_of);
		points8(iq2xxs_grid + 2 * (index & 255), iq2xxs_grid + 2 * (index >> 8), signs, q);
		least = 0;
		return half_at(s) * (0.5f + float(word >> 28)) * 0.25f;
	}
};

// nibble_scale is the scale of chunk c of IQ2_XS and IQ2_S.
inline float nibble_scale(float d, device const uchar *scales, uint c) {
	return d * (0.5f + float(scales[c / 2] >> (c % 2 * 4) & 15)) * 0.25f;
}

struct iq2_xs : blocks<iq2_xs> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 74 * ulong(i / 16);
		const uint c = i % 16;
		const uint v = load4(s + 2 + 4 * c);
		points8(iq2xs_grid + 2 * (v & 511), iq2xs_grid + 2 * (v >> 16 & 511), v >> 9 & 127 | v >> 25 << 7, q);
		least = 0;
		return nibble_scale(half_at(s), s + 66, c);
	}
};

struct iq2_s : blocks<iq2_s> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 82 * ulong(i / 16);
		const uint c = i % 16, low = load2(s + 2 + 2 * c), signs = load2(s + 34 + 2 * c), high = s[66 + c / 2] >> (4 * (c % 2));
		constant uint *p0 = iq2s_grid + 2 * ((low & 255) | (high & 3) << 8), *p1 = iq2s_grid + 2 * (low >> 8 | (high >> 2 & 3) << 8);
		points16(uint4(p0[0], p0[1], p1[0], p1[1]), signs, q);
		least = 0;
		return nibble_scale(half_at(s), s + 74, c);
	}
};

struct iq3_xxs : blocks<iq3_xxs> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 98 * ulong(i / 16);
		const uint c = i % 16, index = load4(s + 2 + 4 * c), word = load4(s + 66 + 4 * (c / 2)), signs = word >> (14 * (c % 2));
		constant uint *s0 = even_signs + 2 * (signs & 127), *s1 = even_signs + 2 * (signs >> 7 & 127);
		const uint4 sign = uint4(s0[0], s0[1], s1[0], s1[1]);
		uint4 v;
		for (ushort k = 0; k < 4; k++) v[k] = signed4(iq3xxs_grid[index >> (8 * k) & 255], sign[k]);
		fields(v, 255, 0, 128, q);
		least = 0;
		return half_at(s) * (0.5f + float(word >> 28)) * 0.5f;
	}
};

struct iq3_s : blocks<iq3_s> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 110 * ulong(i / 16);
		const uint c = i % 16, index = load4(s + 2 + 4 * c), mask = load2(s + 74 + 2 * c), high = s[66 + c / 2] >> (4 * (c % 2));
		uint4 v;
		for (ushort k = 0; k < 4; k++) v[k] = iq3s_grid[(index >> (8 * k) & 255) | (high >> k & 1) << 8];
		points16(v, mask, q);
		least = 0;
		return half_at(s) * float(1 + 2 * (s[106 + c / 4] >> (c / 2 % 2 * 4) & 15));
	}
};

// ternary gives two points of eight elements -1, 0 and 1, moved by an eighth: up,
// or down where negative.
inline void ternary(constant uint *p0, bool negative0, constant uint *p1, bool negative1, thread float *q) {
	fields(uint4(p0[0], p0[1], p1[0], p1[1]) ^ 0x80808080u, 255, 0, 128, q);
	for (ushort k = 0; k < 16; k++) q[k] += (k < 8 ? negative0 : negative1) ? -0.125f : 0.125f;
}

struct iq1_s : blocks<iq1_s> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 50 * ulong(i / 16);
		const uint c = i % 16, low = load2(s + 2 + 2 * c), high = load2(s + 34 + 2 * (c / 2)), bits = high >> (6 * (c % 2));
		constant uint *p0 = iq1_grid + 2 * ((low & 255) | (bits & 7) << 8), *p1 = iq1_grid + 2 * (low >> 8 | (bits >> 3 & 7) << 8);
		ternary(p0, high >> 15, p1, high >> 15, q);
		least = 0;
		return half_at(s) * float(1 + 2 * (high >> 12 & 7));
	}
};

struct iq1_m : blocks<iq1_m> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 56 * ulong(i / 16);
		const uint c = i % 16, low = load2(s + 2 * c), high = s[32 + c], sc = load2(s + 48 + 2 * (c / 4)) >> (c % 4 * 3) & 7;
		constant uint *p0 = iq1_grid + 2 * ((low & 255) | (high & 7) << 8), *p1 = iq1_grid + 2 * (low >> 8 | (high >> 4 & 7) << 8);
		ternary(p0, high & 8, p1, high & 128, q);
		ushort d = 0;
		for (ushort k = 0; k < 4; k++) d |= load2(s + 48 + 2 * k) >> 12 << (4 * k);
		least = 0;
		return float(as_type<half>(d)) * float(1 + 2 * sc);
	}
};

// table16 gives the values of nibbles.
inline void table16(uint4 v, thread float *q) {
	for (ushort k = 0; k < 16; k++) q[k] = iq4nl_values[v[k / 4] >> (8 * (k % 4)) & 15];
}

struct iq4_nl : blocks<iq4_nl> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 18 * ulong(i / 2);
		table16(load16(s + 2) >> (4 * (i % 2)), q);
		least = 0;
		return half_at(s);
	}
};

struct iq4_xs : blocks<iq4_xs> {
	enum { MINIMA = 0 };
	static float quants(device const uchar *row, uint i, thread float (&q)[16], thread float &least) {
		device const uchar *s = row + 136 * ulong(i / 16);
		const uint g = i % 16 / 2;
		table16(load16_aligned4(s + 8 + 16 * g) >> (4 * (i % 2)), q);
		const int sc = (s[4 + g / 2] >> (g % 2 * 4) & 15) | (load2(s + 2) >> (2 * g) & 3) << 4;
		least = 0;
		return half_at(s) * float(sc - 32);
	}
};

// EACH_TYPE(X) is X(type) for every decoder.
#define EACH_TYPE(X)                                                                                                   \
	X(f32) X(f16) X(bf16) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(mxfp4) X(nvfp4) X(iq4_nl)                          \
	X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq4_xs)

// INSTANCE(name, kernel<...>) is an instance of a template of kernels that the
// host finds by the name.
#define INSTANCE(name, ...) template [[host_name(#name)]] kernel decltype(__VA_ARGS__) __VA_ARGS__;
