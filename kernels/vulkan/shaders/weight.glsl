// Single weights as float32, those of package gguf, of the types that products multiply by float32
// activations: F32, F16, BF16, NVFP4, and the codebook types but IQ2_XXS and IQ4. Included after
// prelude.glsl and exact.glsl, with TYPE the number of the type in GGUF files and TABLES the
// address of kernels/gpu/tables.go.
#include "unblocked.glsl"
#include "types.glsl"

#define PLAIN (TYPE == F32 || TYPE == F16 || TYPE == BF16 || TYPE == NVFP4 || TYPE == IQ2_XS || TYPE == IQ2_S || \
               TYPE == IQ3_XXS || TYPE == IQ3_S || TYPE == IQ1_S || TYPE == IQ1_M)

// A weight of the codebook types is element i & 7 of point p = i/8 of a block of 256. A point has
// eight magnitudes, or with IQ3 two points of four have. Each function gives the scale, exactly:
// half times at most five bits. Products of scale and magnitude are exact too.

// signed_byte is byte k of v, with a sign if negative.
float signed_byte(uint v, uint k) { return float(bitfieldExtract(int(v), int(8u * k), 8)); }
float magnitude(uint v, uint k, uint negative) {
	const float m = float(v >> (8u * k) & 255u);
	return negative != 0u ? -m : m;
}

// even_sign is the sign of element k of eight that have an even number of minuses: the last one
// follows from the seven that are stored.
uint even_sign(uint stored, uint k) { return k < 7u ? stored >> k & 1u : uint(bitCount(stored)) & 1u; }

uint grid_word(uint at) { return InUints(TABLES).at[at]; }

float iq2_xs_at(uint64_t b, uint p, uint k) {
	const uint q = short_at(b + 2ul + 2u * p), steps = byte_at(b + 66ul + p / 4u) >> (2u * (p & 2u)) & 15u;
	precise const float scale = half_value(short_at(b)) * (0.5 + float(steps)) * 0.25;
	return scale * magnitude(grid_word(RMG_GRID_IQ2_XS + 2u * (q & 511u) + k / 4u), k & 3u, even_sign(q >> 9, k));
}

float iq2_s_at(uint64_t b, uint p, uint k) {
	const uint point = byte_at(b + 2ul + p) | (byte_at(b + 66ul + p / 4u) >> (2u * (p & 3u)) & 3u) << 8;
	const uint steps = byte_at(b + 74ul + p / 4u) >> (2u * (p & 2u)) & 15u;
	precise const float scale = half_value(short_at(b)) * (0.5 + float(steps)) * 0.25;
	return scale * magnitude(grid_word(RMG_GRID_IQ2_S + 2u * point + k / 4u), k & 3u, byte_at(b + 34ul + p) >> k & 1u);
}

float iq3_xxs_at(uint64_t b, uint p, uint k) {
	const uint point = byte_at(b + 2ul + 2u * p + k / 4u), word = word_at(b + 66ul + (p & ~3u));
	precise const float scale = half_value(short_at(b)) * (0.5 + float(word >> 28)) * 0.5;
	return scale * magnitude(grid_word(RMG_GRID_IQ3_XXS + point), k & 3u, even_sign(word >> (7u * (p & 3u)) & 127u, k));
}

float iq3_s_at(uint64_t b, uint p, uint k) {
	const uint half_point = 2u * p + k / 4u;
	const uint point = byte_at(b + 2ul + half_point) | (byte_at(b + 66ul + half_point / 8u) >> (half_point & 7u) & 1u) << 8;
	const uint steps = byte_at(b + 106ul + p / 8u) >> (p & 4u) & 15u;
	precise const float scale = half_value(short_at(b)) * float(1u + 2u * steps);
	return scale * magnitude(grid_word(RMG_GRID_IQ3_S + point), k & 3u, byte_at(b + 74ul + p) >> k & 1u);
}

// ternary is element k of a point of -1, 0 and 1 that is moved by an eighth.
float ternary(float scale, uint point, uint k, uint down) {
	precise const float moved = signed_byte(grid_word(RMG_GRID_IQ1 + 2u * point + k / 4u), k & 3u) + (down != 0u ? -0.125 : 0.125);
	return scale * moved;
}

float iq1_s_at(uint64_t b, uint p, uint k) {
	const uint high = short_at(b + 34ul + 2u * (p / 4u)), point = byte_at(b + 2ul + p) | (high >> (3u * (p & 3u)) & 7u) << 8;
	precise const float scale = half_value(short_at(b)) * float(1u + 2u * (high >> 12 & 7u));
	return ternary(scale, point, k, high >> 15);
}

float iq1_m_at(uint64_t b, uint p, uint k) {
	const uint low = word_at(b + 48ul), top = word_at(b + 52ul);
	const uint d = (low >> 12 & 15u) | (low >> 24 & 0xf0u) | (top >> 4 & 0xf00u) | (top >> 16 & 0xf000u);
	const uint nibble = byte_at(b + 32ul + p / 2u) >> (4u * (p & 1u)) & 15u;
	const uint steps = short_at(b + 48ul + 2u * (p / 8u)) >> (3u * (p / 2u & 3u)) & 7u;
	precise const float scale = half_value(d) * float(1u + 2u * steps);
	return ternary(scale, byte_at(b + p) | (nibble & 7u) << 8, k, nibble >> 3);
}

// nvfp4_at is weight i of NVFP4: 16 weights have a scale and eight bytes, the first eight in their
// low nibbles. A quant is -1^s * {0, 1, 2, 3, 4, 6, 8, 12}, a scale gguf.NVFP4Scale. All is exact.
float nvfp4_at(uint64_t row, uint i) {
	const uint64_t b = row + 36ul * (i / 64u);
	const uint e = byte_at(b + (i / 16u & 3u)), x = e >> 3 & 15u, m = e & 7u;
	const uint q = byte_at(b + 4ul + 8u * (i / 16u & 3u) + (i & 7u)) >> (i >> 1 & 4u) & 15u, s = q & 7u;
	const int size = s < 2u ? int(s) : int(2u + (s & 1u)) << ((s >> 1) - 1u);
	const float scale = e == 127u ? 0.0 : x == 0u ? float(m) * 0.0009765625 : float(8u + m) * uintBitsToFloat((x + 116u) << 23);
	return scale * float(q >= 8u ? -size : size);
}

// weight_at is weight i of a row.
float weight_at(uint64_t row, uint i) {
	const uint block = i / 256u, p = i / 8u & 31u, k = i & 7u;
	switch (TYPE) {
	case IQ2_XS: return iq2_xs_at(row + 74ul * block, p, k);
	case IQ2_S: return iq2_s_at(row + 82ul * block, p, k);
	case IQ3_XXS: return iq3_xxs_at(row + 98ul * block, p, k);
	case IQ3_S: return iq3_s_at(row + 110ul * block, p, k);
	case IQ1_S: return iq1_s_at(row + 50ul * block, p, k);
	case IQ1_M: return iq1_m_at(row + 56ul * block, p, k);
	case NVFP4: return nvfp4_at(row, i);
	default: return unblocked_at(row, i);
	}
}
