// Arithmetic that gives the CPU's bits on every device (kernels/cpu/simd.h, exp.h). Included
// after prelude.glsl.
//
// Results that must be rounded once each are "precise": the compiler contracts nothing.

// fused_soft is a*b+c rounded once, to nearest even, by integers: what fused is where the
// device's fma rounds twice, as GLSL allows.
float fused_soft(float a, float b, float c) {
	const uint ba = floatBitsToUint(a), bb = floatBitsToUint(b), bc = floatBitsToUint(c);
	const uint ea = ba >> 23 & 255u, eb = bb >> 23 & 255u, ec = bc >> 23 & 255u;
	// Infinities, NaNs and zeros: one rounding at most.
	if (ea == 255u || eb == 255u || ec == 255u || (ba << 1) == 0u || (bb << 1) == 0u) {
		precise float product = a * b;
		precise float sum = product + c;
		return sum;
	}
	// |x| = m * 2^(e - 150), subnormal numbers with e = 1.
	const uint64_t ma = ea == 0u ? ba & 0x7fffffu : (ba & 0x7fffffu) | 0x800000u;
	const uint64_t mb = eb == 0u ? bb & 0x7fffffu : (bb & 0x7fffffu) | 0x800000u;
	const uint64_t mc = ec == 0u ? bc & 0x7fffffu : (bc & 0x7fffffu) | 0x800000u;
	uint64_t p = ma * mb << 14, q = mc << 38; // below 2^62
	const int ep = int(max(ea, 1u) + max(eb, 1u)) - 300 - 14, eq = int(max(ec, 1u)) - 150 - 38;
	// The one with the smaller exponent is shifted right; bits that leave it stay as its last.
	int e = max(ep, eq);
	if (q == 0ul) e = ep;
	const int sp = e - ep, sq = e - eq;
	if (sp > 0) p = sp > 62 ? (p != 0ul ? 1ul : 0ul) : p >> sp | ((p & ((1ul << sp) - 1ul)) != 0ul ? 1ul : 0ul);
	if (sq > 0) q = sq > 62 ? (q != 0ul ? 1ul : 0ul) : q >> sq | ((q & ((1ul << sq) - 1ul)) != 0ul ? 1ul : 0ul);
	const bool minus_p = ((ba ^ bb) >> 31) != 0u, minus_q = (bc >> 31) != 0u;
	uint64_t m;
	bool minus = minus_p;
	if (minus_p == minus_q) {
		m = p + q;
	} else if (p >= q) {
		m = p - q;
	} else {
		m = q - p;
		minus = minus_q;
	}
	if (m == 0ul) return 0.0;
	const uint high = uint(m >> 32);
	const int top = high != 0u ? 32 + findMSB(high) : findMSB(uint(m));
	if (top + e > 127) return uintBitsToFloat(minus ? 0xff800000u : 0x7f800000u);
	const int last = max(top + e - 23, -149); // exponent of the last bit of the result
	const int shift = last - e;
	uint64_t r;
	if (shift <= 0) {
		r = m << -shift;
	} else if (shift > 63) {
		r = 0ul;
	} else {
		const uint64_t half_ = 1ul << (shift - 1), rest = m & (half_ * 2ul - 1ul);
		r = m >> shift;
		if (rest > half_ || (rest == half_ && (r & 1ul) != 0ul)) r += 1ul;
	}
	const uint bits = (uint(last + 149) << 23) + uint(r);
	return uintBitsToFloat(min(bits, 0x7f800000u) | (minus ? 0x80000000u : 0u));
}

// fused is a*b+c rounded once.
float fused(float a, float b, float c) {
	if (FUSED != 0) {
		precise float sum = fma(a, b, c);
		return sum;
	}
	return fused_soft(a, b, c);
}

// one_more and one_less are the numbers next to x, away from zero and towards it.
float one_more(float x) { return uintBitsToFloat(floatBitsToUint(x) + 1u); }
float one_less(float x) { return uintBitsToFloat(floatBitsToUint(x) - 1u); }

// quotient is a/b rounded once, where a, b and the result are normal numbers; other results
// are the device's. Division may be 2.5 units off, so neighbours with smaller remainders
// (which are exact) replace it.
float quotient(float a, float b) {
	precise float q = a / b;
	const uint e = floatBitsToUint(q) >> 23 & 255u, ea = floatBitsToUint(a) >> 23 & 255u, eb = floatBitsToUint(b) >> 23 & 255u;
	if (e < 2u || e > 252u || ea > 252u || eb < 2u || eb > 252u) return q;
	// Remainders of small numbers are made large enough to be exact.
	const float scale = ea < 100u ? 18446744073709551616.0 : 1.0, back = ea < 100u ? 5.421010862427522e-20 : 1.0; // 2^64
	if (ea == 0u) return q;
	a *= scale;
	q *= scale;
	float rest = fused(-q, b, a);
	for (int i = 0; i < 3 && rest != 0; i++) {
		// The quotient is larger in magnitude than q if the remainder has a's sign.
		const float other = ((floatBitsToUint(rest) ^ floatBitsToUint(a)) >> 31) == 0u ? one_more(q) : one_less(q);
		const float other_rest = fused(-other, b, a);
		if (abs(other_rest) >= abs(rest)) break;
		q = other;
		rest = other_rest;
	}
	q *= back;
	return q;
}

// root is sqrt(x) rounded once, likewise.
float root(float x) {
	precise float s = sqrt(x);
	const uint e = floatBitsToUint(x) >> 23 & 255u;
	if (e < 60u || e > 250u) return s;
	float rest = fused(-s, s, x);
	for (int i = 0; i < 3 && rest != 0; i++) {
		const float other = rest > 0 ? one_more(s) : one_less(s);
		const float other_rest = fused(-other, other, x);
		if (abs(other_rest) >= abs(rest)) break;
		s = other;
		rest = other_rest;
	}
	return s;
}

// half_value is the float16 with the given bits, exactly; a NaN becomes quiet.
float half_value(uint h) {
	const uint sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
	if (rest >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (rest > 0x7c00u ? 0x400000u : 0u) | (rest & 0x3ffu) << 13);
	if (rest >= 0x400u) return uintBitsToFloat(sign | ((rest << 13) + (112u << 23)));
	const float f = float(rest) * 5.9604644775390625e-8; // 2^-24
	return sign != 0u ? -f : f;
}

float bfloat_value(uint h) { return uintBitsToFloat(h << 16); }

// half_bits is f as float16, to nearest, ties to even.
uint half_bits(float f) {
	uint u = floatBitsToUint(f);
	const uint sign = u >> 16 & 0x8000u;
	u &= 0x7fffffffu;
	if (u > 0x7f800000u) return sign | 0x7e00u | (u >> 13 & 0x3ffu);
	if (u >= 0x47800000u) return sign | 0x7c00u;
	if (u < 0x38800000u) {
		precise float rounded = uintBitsToFloat(u) + 0.5;
		return sign | ((floatBitsToUint(rounded) - 0x3f000000u) & 0xffffu);
	}
	u += 0xfffu + (u >> 13 & 1u);
	return sign | ((u - (112u << 23)) >> 13);
}

// exponential is rm_expf_inline of kernels/cpu/exp.h.
float exponential(float x) {
	if (x < -87.33654) return 0.0;
	if (x > 88.72283) return uintBitsToFloat(0x7f800000u);
	const float t = fused(x, 1.44269504, 12582912.0);
	precise const float n = t - 12582912.0;
	const float r = fused(-n, -2.12194440e-4, fused(-n, 0.693359375, x));
	float p = fused(1.9875691500e-4, r, 1.3981999507e-3);
	p = fused(p, r, 8.3334519073e-3);
	p = fused(p, r, 4.1665795894e-2);
	p = fused(p, r, 1.6666665459e-1);
	p = fused(p, r, 5.0000001201e-1);
	precise const float square = r * r;
	precise float sum = fused(p, square, r) + 1.0;
	const uint i = floatBitsToUint(t) - 0x4b400000u;
	const uint part = i >> 1 | (i & 0x80000000u);
	sum = sum * uintBitsToFloat((part + 127u) << 23);
	sum = sum * uintBitsToFloat((i - part + 127u) << 23);
	return sum;
}

// glu is rm_glu of kernels/cpu/matmul.h: weight * silu(g) * u, with g and u bounded if
// clamp_ > 1e-6.
float glu(float g, float u, float weight, float clamp_) {
	if (clamp_ > 1e-6) {
		g = clamp_ < g ? clamp_ : g;
		u = clamp_ < u ? clamp_ : u;
		u = -clamp_ > u ? -clamp_ : u;
	}
	precise const float below = 1.0 + exponential(-g);
	precise float product = weight * quotient(g, below);
	product = product * u;
	return product;
}
