// Scores of experts and lists of slots: see kernels.RouteArgs. Included after exact.glsl, with
// EXPERT(i) the expert of slot i in shared memory.

// listed reports whether the slot of an expert is in the lists.
bool listed(int e) { return e >= args.start && e < args.end; }

// list_slots lists the slots of one token as expert_compact does, in offsets [experts+1] and
// slots [used]. The threads of the only workgroup stride over the experts, then over the slots.
void list_slots(Ints offsets, Ints slots) {
	for (uint e = gl_LocalInvocationIndex; e <= args.experts; e += THREADS) {
		int before = 0;
		for (uint i = 0; i < args.used; i++) before += listed(EXPERT(i)) && EXPERT(i) < int(e) ? 1 : 0;
		offsets.at[e] = before;
	}
	for (uint i = gl_LocalInvocationIndex; i < args.used; i += THREADS) {
		if (!listed(EXPERT(i))) continue;
		uint place = 0;
		for (uint k = 0; k < args.used; k++) {
			place += listed(EXPERT(k)) && (EXPERT(k) < EXPERT(i) || (EXPERT(k) == EXPERT(i) && k < i)) ? 1 : 0;
		}
		slots.at[place] = int(i);
	}
}

// log1p_unit is log(1+y) for y in [0, 1] with a relative error of 3 units in the last place, also
// where 1+y rounds to 1: 2*atanh(z) with z = y/(2+y) in [0, 1/3]. The first term of the
// series that is left out is z^18/19 of the first, 1.4e-10.
float log1p_unit(float y) {
	precise const float below = 2.0 + y;
	const float z = quotient(y, below);
	precise const float q = z * z;
	float s = 1.0 / 17.0;
	s = fused(s, q, 1.0 / 15.0);
	s = fused(s, q, 1.0 / 13.0);
	s = fused(s, q, 1.0 / 11.0);
	s = fused(s, q, 1.0 / 9.0);
	s = fused(s, q, 1.0 / 7.0);
	s = fused(s, q, 1.0 / 5.0);
	s = fused(s, q, 1.0 / 3.0);
	precise const float t = z * q;
	return 2.0 * fused(t, s, z);
}

// expert_score is sqrt(softplus(x)), softplus(x) = max(x, 0) + log(1+exp(-|x|)). A NaN stays a NaN.
float expert_score(float x) {
	precise const float sum = (x < 0.0 ? 0.0 : x) + log1p_unit(exponential(-abs(x)));
	return root(sum);
}

// order_of maps floats to numbers in their order. NaNs have a place in it too, so that no two
// experts compare as equal without being so.
uint order_of(float x) {
	const uint bits = floatBitsToUint(x);
	return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// float_of is the inverse of order_of.
float float_of(uint order) { return uintBitsToFloat((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order); }

// sigmoid_of does not overflow.
float sigmoid_of(float x) {
	const float e = exponential(-abs(x));
	precise const float below = 1.0 + e;
	return quotient(x < 0.0 ? e : 1.0, below);
}

// weight_of is the router weight of a score.
float weight_of(float score, float sum) {
	// 6.103515625e-5, the smallest normal half, guards the division.
	if (args.normalise != 0) score = quotient(score, sum < 6.103515625e-5 ? 6.103515625e-5 : sum);
	precise const float weight = score * args.scale;
	return weight;
}
