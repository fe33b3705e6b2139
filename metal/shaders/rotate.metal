// Shared by norms.metal, kv_cache.metal and hyper.metal: exact rotations, the Hadamard
// transform, sums over a threadgroup.

// The bits of 2/pi behind the point, 32 in a word, after two words of zeros.
constant uint two_over_pi[8] = {0,          0,          0xa2f9836eu, 0x4e441529u,
                                0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};

// window is the 32 bits of the table from bit `at` on.
inline uint window(uint at) {
	const uint w = at / 32, s = at % 32;
	return s == 0 ? two_over_pi[w] : two_over_pi[w] << s | two_over_pi[w + 1] >> (32 - s);
}

// cos_sin is the cosine and the sine of any float32 x, to about one unit in the
// last place, whatever its size: x times 2/pi is computed in integers with all
// the bits that matter (the reduction of Payne and Hanek), since a float32
// quotient of an angle of a million would lose the turn itself.
inline float2 cos_sin(float x) {
	const uint bits = as_type<uint>(x);
	const int e = int(bits >> 23 & 255u) - 127;
	if (e == 128) return float2(NAN, NAN);
	float a = fabs(x), low = 0.0f; // the angle within its quarter is a + low
	uint quarter = 0;
	if (e >= -1) {
		// |x| = m * 2^(e-31). Bits of 2/pi whose products are multiples of
		// four quarters are left out: the window of 96 begins at bit e-32,
		// and m * window, modulo 2^96, is |x|*2/pi modulo 4, times 2^94.
		const uint m = bits << 8 | 0x80000000u, at = uint(e + 31);
		const ulong low_product = ulong(m) * ulong(window(at + 64));
		const ulong middle = ulong(m) * ulong(window(at + 32)) + (low_product >> 32);
		const ulong turns = ulong(m * window(at) + uint(middle >> 32)) << 32 | ulong(uint(middle));
		quarter = uint((turns + (1ul << 61)) >> 62);
		const long rest = long(turns - (ulong(quarter) << 62)); // in quarters, times 2^62; at most half a quarter
		const float r = float(rest), s = float(rest - long(r));
		const float scale = 1.57079637050628662109375f * 2.168404344971008868e-19f; // pi/2 * 2^-62
		const float scale_low = -4.371139000186241438857e-8f * 2.168404344971008868e-19f;
		a = r * scale;
		low = fma(r, scale, -a) + fma(r, scale_low, s * scale);
	}
	// Taylor series: |a| <= pi/4, what is left out is below 2e-9.
	const float z = a * a;
	float sine = fma(z, 1.0f / 362880, -1.0f / 5040);
	sine = fma(sine, z, 1.0f / 120);
	sine = fma(sine, z, -1.0f / 6);
	sine = fma(sine * z, a, a);
	float cosine = fma(z, -1.0f / 3628800, 1.0f / 40320);
	cosine = fma(cosine, z, -1.0f / 720);
	cosine = fma(cosine, z, 1.0f / 24);
	cosine = fma(cosine, z, -0.5f);
	cosine = fma(cosine, z, 1.0f);
	const float c = fma(-low, sine, cosine), s = fma(low, cosine, sine);
	float2 turned = float2(c, s);
	if (quarter % 4 == 1) turned = float2(-s, c);
	if (quarter % 4 == 2) turned = float2(-c, -s);
	if (quarter % 4 == 3) turned = float2(s, -c);
	if (x < 0) turned.y = -turned.y;
	return turned;
}

// turn rotates the pair (x[0], x[1]) by an angle, given by its cosine and sine.
inline float2 turn(float2 x, float2 angle) {
	return float2(fma(x.x, angle.x, -x.y * angle.y), fma(x.x, angle.y, x.y * angle.x));
}

// hadamard transforms dim elements, a power of two, in threadgroup memory, without
// scaling. All threads of the group call it after writing their elements of s; on
// return every thread may read all of s.
inline void hadamard(threadgroup float *s, uint dim, uint thread_index, uint threads) {
	for (uint step = 1; step < dim; step *= 2) {
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = thread_index; i < dim / 2; i += threads) {
			const uint at = (i & ~(step - 1)) * 2 + (i & (step - 1));
			const float x = s[at], y = s[at + step];
			s[at] = x + y;
			s[at + step] = x - y;
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
}

// group_sum is the sum of x over all threads of a group of whole simdgroups,
// first over each simdgroup and then over the simdgroups in order. partial holds
// one number per simdgroup and must not be in use.
inline float group_sum(float x, threadgroup float *partial, uint lane, uint simdgroup, uint simdgroups) {
	x = simd_sum(x);
	if (lane == 0) partial[simdgroup] = x;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	float sum = 0;
	for (uint i = 0; i < simdgroups; i++) sum += partial[i];
	return sum;
}
