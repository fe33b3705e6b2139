// Quantised weights as integers: the formats are those of package gguf, the arithmetic that of
// kernels/cpu/matmul.h. Included after prelude.glsl and exact.glsl, with TYPE the
// number of the type in GGUF files and TABLES the address of kernels/gpu/tables.go.
//
// A row is groups of 32 weights. A quarter of a group is eight of them: two words of four
// signed bytes each, that are multiplied by an integer scale (1 for most types).
#include "types.glsl"
#include "tables.glsl"

// Whether groups have a minimum, or one for each half.
#define MINIMA (TYPE == Q4_1 || TYPE == Q5_1 || TYPE == Q4_K || TYPE == Q5_K)
#define HALF_MINIMA (TYPE == Q2_K)

// block_of is the block of group g: 32 weights, or with K-quants and their kin 256.
uint64_t block_of(uint64_t row, uint g) {
	switch (TYPE) {
	case Q4_0: return row + 18ul * g;
	case Q4_1: return row + 20ul * g;
	case Q5_0: return row + 22ul * g;
	case Q5_1: return row + 24ul * g;
	case Q8_0: return row + 34ul * g;
	case IQ4_NL: return row + 18ul * g;
	case MXFP4: return row + 17ul * g;
	case Q2_K: return row + 84ul * (g / 8u);
	case Q3_K: return row + 110ul * (g / 8u);
	case Q4_K: return row + 144ul * (g / 8u);
	case Q5_K: return row + 176ul * (g / 8u);
	case Q6_K: return row + 210ul * (g / 8u);
	case IQ2_XXS: return row + 66ul * (g / 8u);
	default: return row + 136ul * (g / 8u); // IQ4_XS
	}
}

// Subtractions in each byte: of 8 from values below 16, and so on.
uint less_4(uint v) { return (v & 0x03030303u) | (~v & 0x04040404u) * 63u; }
uint less_8(uint v) { return (v & 0x07070707u) | (~v & 0x08080808u) * 31u; }
uint less_16(uint v) { return (v & 0x0f0f0f0fu) | (~v & 0x10101010u) * 15u; }
uint less_32(uint v) { return (v & 0x1f1f1f1fu) | (~v & 0x20202020u) * 7u; }

// bits_to_bytes puts bits 0 to 3 of v into bit 0 of four bytes.
uint bits_to_bytes(uint v) { return ((v & 15u) * 0x00204081u) & 0x01010101u; }

// looked_up replaces nibbles in the bytes of v by entries of a table of 16 bytes.
uint looked_up(const uint table[4], uint v) {
	uint r = 0;
	[[unroll]] for (uint k = 0; k < 32; k += 8) {
		const uint n = v >> k & 15u;
		r |= (table[n >> 2] >> (8u * (n & 3u)) & 255u) << k;
	}
	return r;
}

// quarter is quarter k of group g.
void quarter(uint64_t row, uint g, uint k, out uint w0, out uint w1, out int scale) {
	const uint64_t b = block_of(row, g);
	const uint i = g & 7u; // of blocks of 256
	scale = 1;
	switch (TYPE) {
	case Q8_0:
		w0 = word_at(b + 2ul + 8ul * k);
		w1 = word_at(b + 6ul + 8ul * k);
		break;
	case Q4_0: case IQ4_NL: {
		const uint64_t at = b + 2ul + 8ul * (k & 1u);
		const uint shift = 4u * (k >> 1);
		w0 = word_at(at) >> shift & 0x0f0f0f0fu;
		w1 = word_at(at + 4ul) >> shift & 0x0f0f0f0fu;
		w0 = TYPE == Q4_0 ? less_8(w0) : looked_up(iq4nl_words, w0);
		w1 = TYPE == Q4_0 ? less_8(w1) : looked_up(iq4nl_words, w1);
		break;
	}
	case Q4_1: {
		const uint64_t at = b + 4ul + 8ul * (k & 1u);
		const uint shift = 4u * (k >> 1);
		w0 = word4_at(at) >> shift & 0x0f0f0f0fu;
		w1 = word4_at(at + 4ul) >> shift & 0x0f0f0f0fu;
		break;
	}
	case Q5_0: case Q5_1: {
		const uint64_t at = b + (TYPE == Q5_0 ? 6ul : 8ul) + 8ul * (k & 1u);
		const uint shift = 4u * (k >> 1), high = word_at(b + (TYPE == Q5_0 ? 2ul : 4ul)) >> (8u * k);
		w0 = (word_at(at) >> shift & 0x0f0f0f0fu) | bits_to_bytes(high) << 4;
		w1 = (word_at(at + 4ul) >> shift & 0x0f0f0f0fu) | bits_to_bytes(high >> 4) << 4;
		if (TYPE == Q5_0) {
			w0 = less_16(w0);
			w1 = less_16(w1);
		}
		break;
	}
	case MXFP4: {
		const uint64_t at = b + 1ul + 8ul * (k & 1u);
		const uint shift = 4u * (k >> 1);
		w0 = byte_at(at) | byte_at(at + 1ul) << 8 | byte_at(at + 2ul) << 16 | byte_at(at + 3ul) << 24;
		w1 = byte_at(at + 4ul) | byte_at(at + 5ul) << 8 | byte_at(at + 6ul) << 16 | byte_at(at + 7ul) << 24;
		w0 = looked_up(mxfp4_words, w0 >> shift & 0x0f0f0f0fu);
		w1 = looked_up(mxfp4_words, w1 >> shift & 0x0f0f0f0fu);
		break;
	}
	case Q2_K: {
		const uint64_t at = b + 16ul + 32ul * (i / 4u) + 8ul * k;
		w0 = word4_at(at) >> (2u * (i & 3u)) & 0x03030303u;
		w1 = word4_at(at + 4ul) >> (2u * (i & 3u)) & 0x03030303u;
		scale = int(byte_at(b + 2u * i + (k >> 1)) & 15u);
		break;
	}
	case Q3_K: {
		const uint64_t at = b + 32ul + 32ul * (i / 4u) + 8ul * k, high = b + 8ul * k;
		w0 = (word_at(at) >> (2u * (i & 3u)) & 0x03030303u) | (word_at(high) >> i & 0x01010101u) << 2;
		w1 = (word_at(at + 4ul) >> (2u * (i & 3u)) & 0x03030303u) | (word_at(high + 4ul) >> i & 0x01010101u) << 2;
		w0 = less_4(w0);
		w1 = less_4(w1);
		const uint j = 2u * i + (k >> 1);
		const uint low = byte_at(b + 96ul + j % 8u) >> (j / 8u * 4u) & 15u, top = byte_at(b + 104ul + j % 4u) >> (2u * (j / 4u)) & 3u;
		scale = int(low | top << 4) - 32;
		break;
	}
	case Q4_K: case Q5_K: {
		const uint64_t at = b + (TYPE == Q4_K ? 16ul : 48ul) + 32ul * (i / 2u) + 8ul * k;
		const uint shift = 4u * (i & 1u);
		w0 = word4_at(at) >> shift & 0x0f0f0f0fu;
		w1 = word4_at(at + 4ul) >> shift & 0x0f0f0f0fu;
		if (TYPE == Q5_K) {
			w0 |= (word4_at(b + 16ul + 8ul * k) >> i & 0x01010101u) << 4;
			w1 |= (word4_at(b + 20ul + 8ul * k) >> i & 0x01010101u) << 4;
		}
		break;
	}
	case Q6_K: {
		const uint h = i / 4u, r = i & 3u;
		const uint64_t at = b + 64ul * h + 32ul * (r & 1u) + 8ul * k, high = b + 128ul + 32ul * h + 8ul * k;
		const uint shift = 4u * (r / 2u);
		w0 = (word_at(at) >> shift & 0x0f0f0f0fu) | (word_at(high) >> (2u * r) & 0x03030303u) << 4;
		w1 = (word_at(at + 4ul) >> shift & 0x0f0f0f0fu) | (word_at(high + 4ul) >> (2u * r) & 0x03030303u) << 4;
		w0 = less_32(w0);
		w1 = less_32(w1);
		scale = int(InChars(b + 192ul + 2u * i + (k >> 1)).at[0]);
		break;
	}
	case IQ2_XXS: {
		const uint64_t p = b + 2ul + 8ul * i;
		const uint point = byte_at(p + k), n = word_at(p + 4ul) >> (7u * k) & 127u;
		const uint minus = n | (uint(bitCount(n)) & 1u) << 7; // an even number of them
		const uint m0 = bits_to_bytes(minus), m1 = bits_to_bytes(minus >> 4);
		// -v is ~v + 1 in each byte, and v is at least 1, so nothing is carried.
		w0 = (InUints(TABLES).at[RMG_GRID_IQ2_XXS + 2u * point] ^ (m0 * 255u)) + m0;
		w1 = (InUints(TABLES).at[RMG_GRID_IQ2_XXS + 2u * point + 1u] ^ (m1 * 255u)) + m1;
		break;
	}
	default: { // IQ4_XS
		const uint64_t at = b + 8ul + 16ul * i + 8ul * (k & 1u);
		const uint shift = 4u * (k >> 1);
		w0 = looked_up(iq4nl_words, word4_at(at) >> shift & 0x0f0f0f0fu);
		w1 = looked_up(iq4nl_words, word4_at(at + 4ul) >> shift & 0x0f0f0f0fu);
		break;
	}
	}
}

uint q4k_scale(uint64_t s, uint j) {
	return j < 4u ? byte_at(s + j) & 63u : (byte_at(s + j + 4ul) & 15u) | byte_at(s + j - 4ul) >> 6 << 4;
}
uint q4k_min(uint64_t s, uint j) {
	return j < 4u ? byte_at(s + j + 4ul) & 63u : byte_at(s + j + 4ul) >> 4 | byte_at(s + j) >> 6 << 4;
}

// scales are those of group g: what its integers are multiplied by, and the negated minima,
// the first for the whole group or for its first half.
void scales(uint64_t row, uint g, out float s, out float m0, out float m1) {
	const uint64_t b = block_of(row, g);
	const uint i = g & 7u;
	m0 = m1 = 0;
	precise float product;
	switch (TYPE) {
	case Q4_1: case Q5_1:
		m0 = half_value(short_at(b + 2ul));
		s = half_value(short_at(b));
		break;
	case MXFP4: {
		const uint e = byte_at(b);
		s = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
		break;
	}
	case Q2_K: {
		const float least = half_value(short_at(b + 82ul));
		product = least * float(byte_at(b + 2u * i) >> 4);
		m0 = -product;
		product = least * float(byte_at(b + 2u * i + 1u) >> 4);
		m1 = -product;
		s = half_value(short_at(b + 80ul));
		break;
	}
	case Q3_K:
		s = half_value(short_at(b + 108ul));
		break;
	case Q4_K: case Q5_K:
		product = half_value(short_at(b + 2ul)) * float(q4k_min(b + 4ul, i));
		m0 = -product;
		product = half_value(short_at(b)) * float(q4k_scale(b + 4ul, i));
		s = product;
		break;
	case Q6_K:
		s = half_value(short_at(b + 208ul));
		break;
	case IQ2_XXS:
		product = half_value(short_at(b)) * (0.5 + float(word_at(b + 6ul + 8ul * i) >> 28));
		product = product * 0.25;
		s = product;
		break;
	case IQ4_XS: {
		const uint low = byte_at(b + 4ul + i / 2u) >> (4u * (i & 1u)) & 15u, high = short_at(b + 2ul) >> (2u * i) & 3u;
		product = half_value(short_at(b)) * float(int(low | high << 4) - 32);
		s = product;
		break;
	}
	default: // Q4_0, Q5_0, Q8_0, IQ4_NL
		s = half_value(short_at(b));
		break;
	}
}
