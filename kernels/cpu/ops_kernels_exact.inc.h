// The sums of exact terms, as multiples of 2^-24; included like ops_kernels.inc.h and
// after it.

#define SUMS 64 // that sum_exact adds at a time
#define NOT_A_NUMBER INT64_MIN

// round_terms rounds the terms of n sums to float16 into x; those behind n are 0.
VINLINE void round_terms(float *x, const float *terms, int64_t n) {
	for (int64_t i = 0; i < SUMS; i += VW) {
		if (i + VW <= n) v_store(x + i, v_round_f16(v_load(terms + i)));
		else v_store(x + i, i < n ? v_round_f16(v_load_n(terms + i, n - i)) : v_set(0));
	}
}

// sum_large is what sum_exact does with terms that doubles might round.
static void sum_large(int64_t *sum, const float *terms, int64_t count, int64_t stride, int64_t n) {
	float x[SUMS];
	for (int j = 0; j < SUMS; j++) sum[j] = 0;
	for (int64_t i = 0; i < count; i++) {
		round_terms(x, terms + i * stride, n);
		for (int j = 0; j < SUMS; j++) {
			if (sum[j] == NOT_A_NUMBER) continue;
			if (x[j] > -0x1p31f && x[j] < 0x1p31f) sum[j] += (int64_t)((double)x[j] * 0x1p24);
			else sum[j] = NOT_A_NUMBER;
		}
	}
}

// sum_doubles adds in doubles, which are exact while the sum of the magnitudes is below
// 2^26, so that multiples of 2^-24 have at most 50 bits.
static void sum_doubles(int64_t *sum, const float *terms, int64_t count, int64_t stride, int64_t n) {
	float x[SUMS], size[SUMS] = {0};
	double exact[SUMS] = {0};
	for (int64_t i = 0; i < count; i++) {
		round_terms(x, terms + i * stride, n);
		for (int j = 0; j < SUMS; j++) exact[j] += (double)x[j];
		for (int j = 0; j < SUMS; j++) size[j] += x[j] < 0 ? -x[j] : x[j];
	}
	int large = 0;
	for (int j = 0; j < SUMS; j++) large |= !(size[j] < 0x1p26f);
	if (large) {
		sum_large(sum, terms, count, stride, n);
		return;
	}
	for (int j = 0; j < SUMS; j++) {
		// In 2^52 + 2^51 + x the last 51 bits are x in two's complement.
		double shifted = exact[j] * 0x1p24 + 0x1.8p52;
		int64_t bits;
		memcpy(&bits, &shifted, sizeof bits);
		sum[j] = bits - 0x4338000000000000;
	}
}

#define STRIP (4 * VW) // sums that add_small keeps in registers; divides SUMS

// add_small adds the terms of a strip in int32, and reports whether that is exact: the
// magnitudes of the terms of four columns add up to less than 2^7. It fails for what is
// not finite, because size is then not either.
VINLINE int add_small(int32_t *sum, const float *terms, int64_t count, int64_t stride) {
	v_ints a[4];
	vec size[2] = {v_set(0), v_set(0)};
	for (int u = 0; u < 4; u++) {
		vec x = v_round_f16(v_load(terms + u * VW));
		a[u] = v_fixed(x);
		size[u % 2] = v_add(size[u % 2], v_abs(x));
	}
	for (int64_t i = 1; i < count; i++) {
		for (int u = 0; u < 4; u++) {
			vec x = v_round_f16(v_load(terms + i * stride + u * VW));
			a[u] = v_fixed_add(a[u], v_fixed(x));
			size[u % 2] = v_add(size[u % 2], v_abs(x));
		}
	}
	for (int u = 0; u < 4; u++) v_fixed_store(sum + u * VW, a[u]);
	float total[VW];
	v_store(total, v_add(size[0], size[1]));
	int small = 1;
	for (int j = 0; j < VW; j++) small &= total[j] < 0x1p7f - 1; // less what adding it may have rounded off
	return small;
}

VINLINE void keep_sums(int64_t *sums, const int64_t *sum, int64_t n, int add) {
	if (!add) {
		memcpy(sums, sum, (size_t)n * sizeof *sums);
		return;
	}
	for (int64_t j = 0; j < n; j++) {
		sums[j] = sums[j] == NOT_A_NUMBER || sum[j] == NOT_A_NUMBER ? NOT_A_NUMBER : sums[j] + sum[j];
	}
}

static void sum_exact(int64_t *sums, const float *terms, int64_t count, int64_t stride, int64_t n, int add) {
	int64_t c = 0;
	while (c < n) {
		int32_t small[STRIP];
		if (count > 0 && n - c >= STRIP && add_small(small, terms + c, count, stride)) {
			if (add) {
				for (int j = 0; j < STRIP; j++) sums[c + j] = sums[c + j] == NOT_A_NUMBER ? NOT_A_NUMBER : sums[c + j] + small[j];
			} else {
				for (int j = 0; j < STRIP; j++) sums[c + j] = small[j];
			}
			c += STRIP;
			continue;
		}
		int64_t lanes = n - c < SUMS ? n - c : SUMS, sum[SUMS];
		sum_doubles(sum, terms + c, count, stride, lanes);
		keep_sums(sums + c, sum, lanes, add);
		c += lanes;
	}
}

static float quiet_nan(void) {
	const uint32_t bits = 0x7fc00000;
	float nan;
	memcpy(&nan, &bits, sizeof nan);
	return nan;
}

static void round_sums(float *out, const int64_t *sums, int64_t n) {
	int64_t i = 0;
	for (; i + SUMS <= n; i += SUMS) {
		uint64_t large = 0;
		for (int j = 0; j < SUMS; j++) large |= ((uint64_t)sums[i + j] + ((uint64_t)1 << 50)) >> 51;
		if (large) break;
		for (int j = 0; j < SUMS; j++) {
			int64_t bits = sums[i + j] + 0x4338000000000000;
			double shifted;
			memcpy(&shifted, &bits, sizeof shifted);
			out[i + j] = (float)((shifted - 0x1.8p52) * 0x1p-24);
		}
	}
	for (; i < n; i++) out[i] = sums[i] == NOT_A_NUMBER ? quiet_nan() : (float)sums[i] * 0x1p-24f;
}
