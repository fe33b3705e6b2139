// Conversions between float16 and float32, exact to the bit.

// float16_bits rounds the bits of a float32 to those of a float16: to nearest,
// ties to even, overflow to infinity; NaNs become quiet and keep their upper bits.
// In integers, because devices differ in how they convert subnormals and NaNs.
inline ushort float16_bits(uint x) {
	const uint sign = x >> 16 & 0x8000u;
	uint a = x & 0x7fffffffu;
	if (a > 0x7f800000u) return ushort(sign | 0x7e00u | (a >> 13 & 0x3ffu));
	if (a >= 0x477ff000u) return ushort(sign | 0x7c00u); // 65520 and more
	if (a >= 0x38800000u) {                              // 2^-14: normal
		a += 0xfffu + (a >> 13 & 1u);
		return ushort(sign | (a - 0x38000000u) >> 13);
	}
	if (a < 0x33000000u) return ushort(sign); // rounds to zero
	const uint mantissa = (a & 0x7fffffu) | 0x800000u;
	const uint shift = 126u - (a >> 23); // 14..24
	uint h = mantissa >> shift;
	const uint rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
	if (rest > middle || (rest == middle && (h & 1u) != 0)) h++;
	return ushort(sign | h);
}

// float32_bits widens the bits of a float16 to those of a float32, exactly; NaNs
// become quiet.
inline uint float32_bits(ushort x) {
	const uint sign = uint(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, mantissa = x & 0x3ff;
	if (exponent == 0x1f) return mantissa == 0 ? sign | 0x7f800000u : sign | 0x7fc00000u | mantissa << 13;
	// A subnormal float16 is a multiple of 2^-24, which float32 represents as normal.
	if (exponent == 0) return sign | as_type<uint>(float(mantissa) * 0x1p-24f);
	return sign | ((exponent + 112) << 23 | mantissa << 13);
}
