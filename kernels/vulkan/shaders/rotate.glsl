// Rotations by angles of any size and the Hadamard transform. Included after exact.glsl.

// The bits of 2/pi behind the point, 32 in a word, after two words of zeros.
const uint two_over_pi[8] = {0,           0,           0xa2f9836eu, 0x4e441529u,
                             0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};

// bits_from is the 32 bits of the table from bit `at` on.
uint bits_from(uint at) {
	const uint w = at / 32, s = at % 32;
	return s == 0 ? two_over_pi[w] : two_over_pi[w] << s | two_over_pi[w + 1] >> (32 - s);
}

// cos_sin is the cosine and the sine of any float32 x, to about one unit in the last place,
// whatever its size: x times 2/pi is computed in integers with all the bits that
// matter (the reduction of Payne and Hanek).
vec2 cos_sin(float x) {
	const uint bits = floatBitsToUint(x);
	const int e = int(bits >> 23 & 255u) - 127;
	if (e == 128) return vec2(uintBitsToFloat(0x7fc00000u));
	float a = abs(x), low = 0; // the angle within its quarter is a + low
	uint quarter = 0;
	if (e >= -1) {
		// |x| = m * 2^(e-31). Bits of 2/pi whose products are multiples of four quarters
		// are left out: the window of 96 begins at bit e-32, and m * window,
		// modulo 2^96, is |x|*2/pi modulo 4, times 2^94.
		const uint m = bits << 8 | 0x80000000u, at = uint(e + 31);
		const uint64_t low_product = uint64_t(m) * uint64_t(bits_from(at + 64));
		const uint64_t middle = uint64_t(m) * uint64_t(bits_from(at + 32)) + (low_product >> 32);
		const uint64_t turns = uint64_t(m * bits_from(at) + uint(middle >> 32)) << 32 | uint64_t(uint(middle));
		quarter = uint((turns + (1ul << 61)) >> 62);
		int64_t rest = int64_t(turns - (uint64_t(quarter) << 62)); // in quarters, times 2^62; at most half a quarter
		// rest = r + s with r of its upper bits, so that both convert exactly.
		const int64_t upper = rest >> 39 << 39;
		const float r = float(int(rest >> 39)) * 549755813888.0; // 2^39; at most 23 bits
		const float s = float(int((rest - upper) >> 15)) * 32768.0;
		const float scale = 1.57079637050628662109375 * 2.168404344971008868e-19; // pi/2 * 2^-62
		const float scale_low = -4.371139000186241438857e-8 * 2.168404344971008868e-19;
		precise const float product = r * scale;
		precise const float rest_low = fused(r, scale, -product) + fused(r, scale_low, s * scale);
		precise const float whole = product + rest_low;
		a = whole;
		precise const float left = (product - whole) + rest_low;
		low = left;
	}
	// Taylor series: |a| <= pi/4, what is left out is below 2e-9.
	precise const float z = a * a;
	float sine = fused(z, 1.0 / 362880.0, -1.0 / 5040.0);
	sine = fused(sine, z, 1.0 / 120.0);
	sine = fused(sine, z, -1.0 / 6.0);
	precise const float cube = sine * z;
	sine = fused(cube, a, a);
	float cosine = fused(z, -1.0 / 3628800.0, 1.0 / 40320.0);
	cosine = fused(cosine, z, -1.0 / 720.0);
	cosine = fused(cosine, z, 1.0 / 24.0);
	cosine = fused(cosine, z, -0.5);
	cosine = fused(cosine, z, 1.0);
	const float c = fused(-low, sine, cosine), s = fused(low, cosine, sine);
	vec2 turned = vec2(c, s);
	if (quarter % 4 == 1) turned = vec2(-s, c);
	if (quarter % 4 == 2) turned = vec2(-c, -s);
	if (quarter % 4 == 3) turned = vec2(s, -c);
	if (x < 0) turned.y = -turned.y;
	return turned;
}

// turn rotates the pair x by an angle, given by its cosine and sine, with the CPU's roundings.
vec2 turn(vec2 x, vec2 angle) {
	precise const float a = x.x * angle.x, b = x.y * angle.y, c = x.x * angle.y, d = x.y * angle.x;
	precise const vec2 turned = vec2(a - b, c + d);
	return turned;
}
