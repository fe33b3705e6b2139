// Rotations by angles of any size. Included after exact.glsl.

// The bits of 2/pi behind the point, 32 in a word, after two words of zeros.
const uint two_over_pi[8] = {0,           0,           0xa2f9836eu, 0x4e441529u,
                             0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};

// bits_from is the 32 bits of the table from bit `at` on.
uint bits_from(uint at) {
	const uint w = at / 32, s = at % 32;
	return s == 0 ? two_over_pi[w] : two_over_pi[w] << s | two_over_pi[w + 1] >> (32 - s);
}

// upper_product is the upper half of a*b, or up to 2 less.
uint64_t upper_product(uint64_t a, uint64_t b) {
	const uint a1 = uint(a >> 32), b1 = uint(b >> 32);
	return uint64_t(a1) * uint64_t(b1) + (uint64_t(a1) * uint64_t(uint(b)) >> 32) + (uint64_t(uint(a)) * uint64_t(b1) >> 32);
}

// 2^64/(2k)! and 2^64/(2k+1)! for k from 1 on.
const uint64_t cosine_terms[8] = {0x8000000000000000ul, 0xaaaaaaaaaaaaaaaul, 0x5b05b05b05b05bul, 0x1a01a01a01a01ul,
                                  0x49f93edde27ul, 0x8f76c77fcul, 0xc9cba54ul, 0xd73f9ul};
const uint64_t sine_terms[8] = {0x2aaaaaaaaaaaaaaaul, 0x222222222222222ul, 0xd00d00d00d00dul, 0x2e3bc74aad8eul,
                                0x6b99159fd5ul, 0xb092309dul, 0xd73f9ful, 0xca96ul};

// float_near is the float32 nearest to m * 2^(k-64) * magnitude, a normal number. m is at least 2^62.
float float_near(uint64_t m, int k, float magnitude) {
	if (magnitude != 1.0) {
		const uint bits = floatBitsToUint(magnitude);
		m = upper_product(m, uint64_t(bits << 8 | 0x80000000u) << 32);
		k += int(bits >> 23 & 255u) - 126;
	}
	const int left = 31 - findMSB(uint(m >> 32));
	m <<= left;
	uint mantissa = uint(m >> 40);
	const uint64_t rest = m & 0xfffffffffful;
	if (rest > 0x8000000000ul || (rest == 0x8000000000ul && (mantissa & 1u) != 0)) mantissa++;
	// The carry of a mantissa of 2^24 increases the exponent.
	return uintBitsToFloat((uint(k - left + 126) << 23) + (mantissa - 0x800000u));
}

// cos_sin is the cosine and the sine of any float32 x, times magnitude, in integers: x times 2/pi
// is computed with all the bits that matter (the reduction of Payne and Hanek), and the
// series with errors below 2^-55, so the results are those of the CPU's doubles, rounded to
// float32, but for about one in 2^28.
vec2 cos_sin(float x, float magnitude) {
	const uint bits = floatBitsToUint(x);
	const int e = int(bits >> 23 & 255u) - 127;
	if (e == 128) return vec2(uintBitsToFloat(0x7fc00000u));
	if (e < -60) { // the sine is x
		precise const float small = x * magnitude;
		return vec2(magnitude, small);
	}
	// The angle within its quarter is m * 2^(k-64), with the highest bit of m set.
	uint64_t m = uint64_t(bits << 8 | 0x80000000u) << 32;
	int k = e + 1;
	uint quarter = 0;
	bool minus = false;
	if (e >= -1) {
		// |x| = m * 2^(e-31). Bits of 2/pi whose products are multiples of four quarters
		// are left out: the window of 96 begins at bit e-32, and m * window,
		// modulo 2^96, is |x|*2/pi modulo 4, times 2^94.
		const uint upper = uint(m >> 32), at = uint(e + 31);
		const uint64_t low_product = uint64_t(upper) * uint64_t(bits_from(at + 64));
		const uint64_t middle = uint64_t(upper) * uint64_t(bits_from(at + 32)) + (low_product >> 32);
		const uint64_t turns = uint64_t(upper * bits_from(at) + uint(middle >> 32)) << 32 | uint64_t(uint(middle));
		quarter = uint((turns + (1ul << 61)) >> 62);
		const int64_t rest = int64_t(turns - (uint64_t(quarter) << 62)); // in quarters, times 2^62; at most half a quarter
		minus = rest < 0l;
		m = uint64_t(minus ? -rest : rest); // no float32 but 0 is closer than 2^-31 to a whole number of quarters
		const uint half_ = uint(m >> 32);
		const int left = half_ != 0 ? 31 - findMSB(half_) : 63 - findMSB(uint(m));
		m = upper_product(m << left, 0xc90fdaa22168c234ul); // pi/2 * 2^63
		k = 3 - left;
		if (m >> 63 == 0ul) {
			m <<= 1;
			k--;
		}
	}
	const uint64_t angle = m >> -k, z = upper_product(angle, angle);
	uint64_t c = cosine_terms[7], s = sine_terms[7];
	[[unroll]] for (int i = 6; i >= 0; i--) {
		c = cosine_terms[i] - upper_product(c, z);
		s = sine_terms[i] - upper_product(s, z);
	}
	c = upper_product(c, z);
	s = upper_product(s, z);
	// 2^64 - c and 2^64 - s are the cosine and the sine by the angle, times 2^64.
	const float cosine = c == 0ul ? magnitude : float_near(0ul - c, 0, magnitude);
	float sine = float_near(s == 0ul ? m : upper_product(m, 0ul - s), k, magnitude);
	if (minus) sine = -sine;
	vec2 turned = vec2(cosine, sine);
	if (quarter % 4 == 1) turned = vec2(-sine, cosine);
	if (quarter % 4 == 2) turned = vec2(-cosine, -sine);
	if (quarter % 4 == 3) turned = vec2(sine, -cosine);
	if (x < 0) turned.y = -turned.y;
	return turned;
}

// turn rotates the pair x by an angle, given by its cosine and sine, with the CPU's roundings.
vec2 turn(vec2 x, vec2 angle) {
	precise const float a = x.x * angle.x, b = x.y * angle.y, c = x.x * angle.y, d = x.y * angle.x;
	precise const vec2 turned = vec2(a - b, c + d);
	return turned;
}
