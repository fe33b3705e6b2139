// The op kernels other than tiles, written once on the vectors of ops_vec_*.h:
//
//	vec                      VW floats
//	v_set                    all lanes the same
//	v_load, v_store          VW floats; with _n the first n < VW, the rest 0
//	v_load_f16, v_store_f16  the same in float16
//	v_load_bf16              the same in bfloat16
//	v_round_f16              to float16 and back; what is beyond its range,
//	                         from RM_FLOAT16_END on, stays as it is
//	v_abs                    magnitudes
//	v_fixed                  VW int32, x*2^24 of float16 values below 128
//	v_fixed_add              their sum
//	v_fixed_store            VW int32
//	v_min, v_max             of a bound and x; a NaN in x stays
//	v_fma                    a*b+c
//	v_exp                    rm_expf of the lanes
//	v_sum                    the sum of the lanes, in one fixed order
//	v_sums                   out[h*ld+k] = factor * v_sum(a[h][k]), the same bits
//
// Included once per level, after RM_KERNELS and the vectors.

static float sum_squares(const float *x, int64_t n) {
	vec a[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
	int64_t i = 0;
	for (; i + 4 * VW <= n; i += 4 * VW) {
		for (int u = 0; u < 4; u++) {
			vec v = v_load(x + i + u * VW);
			a[u] = v_fma(v, v, a[u]);
		}
	}
	for (; i + VW <= n; i += VW) {
		vec v = v_load(x + i);
		a[0] = v_fma(v, v, a[0]);
	}
	if (i < n) {
		vec v = v_load_n(x + i, n - i);
		a[1] = v_fma(v, v, a[1]);
	}
	return v_sum(v_add(v_add(a[0], a[1]), v_add(a[2], a[3])));
}

static void scale(float *out, const float *x, const float *weight, float factor, int64_t n) {
	vec f = v_set(factor);
	int64_t i = 0;
	for (; i + VW <= n; i += VW) {
		vec y = v_mul(v_load(x + i), f);
		v_store(out + i, weight ? v_mul(y, v_load(weight + i)) : y);
	}
	if (i < n) {
		vec y = v_mul(v_load_n(x + i, n - i), f);
		v_store_n(out + i, weight ? v_mul(y, v_load_n(weight + i, n - i)) : y, n - i);
	}
}

static void add(float *out, const float *a, const float *b, int64_t n) {
	int64_t i = 0;
	for (; i + VW <= n; i += VW) v_store(out + i, v_add(v_load(a + i), v_load(b + i)));
	for (; i < n; i++) out[i] = a[i] + b[i];
}

// load_typed reads VW elements of a row of F32, F16 or BF16 from element i on.
VINLINE vec load_typed(const uint8_t *row, int64_t i, int32_t type) {
	if (type == RM_TYPE_F16) return v_load_f16((const uint16_t *)(const void *)row + i);
	if (type == RM_TYPE_BF16) return v_load_bf16((const uint16_t *)(const void *)row + i);
	return v_load((const float *)(const void *)row + i);
}

VINLINE vec load_typed_n(const uint8_t *row, int64_t i, int64_t n, int32_t type) {
	if (type == RM_TYPE_F16) return v_load_f16_n((const uint16_t *)(const void *)row + i, n);
	if (type == RM_TYPE_BF16) return v_load_bf16_n((const uint16_t *)(const void *)row + i, n);
	return v_load_n((const float *)(const void *)row + i, n);
}

static void add_typed(float *out, const float *a, const uint8_t *b, int64_t n, int32_t type) {
	int64_t i = 0;
	for (; i + VW <= n; i += VW) v_store(out + i, v_add(v_load(a + i), load_typed(b, i, type)));
	if (i < n) v_store_n(out + i, v_add(v_load_n(a + i, n - i), load_typed_n(b, i, n - i, type)), n - i);
}

VINLINE vec swiglu_of(vec gate, vec up, float clamp) {
	if (clamp > 1e-6f) {
		gate = v_min(v_set(clamp), gate);
		up = v_max(v_set(-clamp), v_min(v_set(clamp), up));
	}
	vec silu = v_div(gate, v_add(v_set(1.0f), v_exp(v_sub(v_set(0), gate))));
	return v_mul(silu, up);
}

static void swiglu(float *out, const float *gate, const float *up, int64_t n, float clamp) {
	int64_t i = 0;
	for (; i + VW <= n; i += VW) v_store(out + i, swiglu_of(v_load(gate + i), v_load(up + i), clamp));
	if (i < n) {
		int64_t rest = n - i;
		v_store_n(out + i, swiglu_of(v_load_n(gate + i, rest), v_load_n(up + i, rest), clamp), rest);
	}
}

static void sum_slots(float *out, const float *slots, int64_t used, int64_t stride, int64_t n) {
	for (int64_t c = 0; c < n; c += VW) {
		int64_t lanes = n - c < VW ? n - c : VW;
		vec sum = v_set(0);
		for (int64_t i = 0; i < used; i++) {
			const float *p = slots + i * stride + c;
			vec x = lanes == VW ? v_load(p) : v_load_n(p, lanes);
			sum = i ? v_add(sum, x) : x;
		}
		if (lanes == VW) {
			v_store(out + c, sum);
		} else {
			v_store_n(out + c, sum, lanes);
		}
	}
}

static void to_float16(uint16_t *dst, const float *src, int64_t n) {
	int64_t i = 0;
	for (; i + VW <= n; i += VW) v_store_f16(dst + i, v_load(src + i));
	if (i < n) v_store_f16_n(dst + i, v_load_n(src + i, n - i), n - i);
}

static void from_float16(float *dst, const uint16_t *src, int64_t n) {
	int64_t i = 0;
	for (; i + VW <= n; i += VW) v_store(dst + i, v_load_f16(src + i));
	if (i < n) v_store_n(dst + i, v_load_f16_n(src + i, n - i), n - i);
}

static void hadamard(float *x, int64_t dim) {
	for (int64_t step = 1; step < dim; step *= 2) {
		for (int64_t base = 0; base < dim; base += 2 * step) {
			float *a = x + base, *b = a + step;
			int64_t i = 0;
			for (; i + VW <= step; i += VW) {
				vec p = v_load(a + i), q = v_load(b + i);
				v_store(a + i, v_add(p, q));
				v_store(b + i, v_sub(p, q));
			}
			for (; i < step; i++) {
				float p = a[i], q = b[i];
				a[i] = p + q;
				b[i] = p - q;
			}
		}
	}
	scale(x, x, NULL, (float)(1.0 / sqrt((double)dim)), dim);
}

static void collapse(float *out, const float *h, const float *pre, int64_t s, int64_t stride, int64_t n) {
	for (int64_t c = 0; c < n; c += VW) {
		int64_t lanes = n - c < VW ? n - c : VW;
		vec sum = v_set(0);
		for (int64_t i = 0; i < s; i++) {
			const float *p = h + i * stride + c;
			vec x = lanes == VW ? v_load(p) : v_load_n(p, lanes);
			sum = v_fma(v_set(pre[i]), x, sum);
		}
		if (lanes == VW) {
			v_store(out + c, sum);
		} else {
			v_store_n(out + c, sum, lanes);
		}
	}
}

VINLINE void expand_of(float *h, const float *y, const float *post, const float *comb, int64_t s, int64_t stride, int64_t n) {
	vec old[16];
	for (int64_t c = 0; c < n; c += VW) {
		int64_t lanes = n - c < VW ? n - c : VW;
		vec add = lanes == VW ? v_load(y + c) : v_load_n(y + c, lanes);
		for (int64_t i = 0; i < s; i++) {
			const float *p = h + i * stride + c;
			old[i] = lanes == VW ? v_load(p) : v_load_n(p, lanes);
		}
		for (int64_t j = 0; j < s; j++) {
			vec sum = v_mul(v_set(post[j]), add);
			for (int64_t i = 0; i < s; i++) sum = v_fma(v_set(comb[i * s + j]), old[i], sum);
			if (lanes == VW) {
				v_store(h + j * stride + c, sum);
			} else {
				v_store_n(h + j * stride + c, sum, lanes);
			}
		}
	}
}

static void expand(float *h, const float *y, const float *post, const float *comb, int64_t s, int64_t stride, int64_t n) {
	if (s == 4) { // every model so far: the loops unroll
		expand_of(h, y, post, comb, 4, stride, n);
	} else {
		expand_of(h, y, post, comb, s, stride, n);
	}
}

static void pool_channels(float *out, const float *const *kv, const float *const *score, int64_t count, int64_t n) {
	for (int64_t c = 0; c < n; c += VW) {
		int64_t lanes = n - c < VW ? n - c : VW;
		vec largest = lanes == VW ? v_load(score[0] + c) : v_load_n(score[0] + c, lanes);
		for (int64_t i = 1; i < count; i++) {
			largest = v_max(largest, lanes == VW ? v_load(score[i] + c) : v_load_n(score[i] + c, lanes));
		}
		vec sum = v_set(0), weights = v_set(0);
		for (int64_t i = 0; i < count; i++) {
			vec s = lanes == VW ? v_load(score[i] + c) : v_load_n(score[i] + c, lanes);
			vec v = lanes == VW ? v_load(kv[i] + c) : v_load_n(kv[i] + c, lanes);
			vec w = v_exp(v_sub(s, largest));
			sum = v_fma(w, v, sum);
			weights = v_add(weights, w);
		}
		if (lanes == VW) {
			v_store(out + c, v_div(sum, weights));
		} else {
			v_store_n(out + c, v_div(sum, weights), lanes);
		}
	}
}

static float exp_sum(float *x, float max, int64_t n) {
	vec m = v_set(max), sum = v_set(0);
	int64_t i = 0;
	for (; i + VW <= n; i += VW) {
		vec e = v_exp(v_sub(v_load(x + i), m));
		v_store(x + i, e);
		sum = v_add(sum, e);
	}
	if (i < n) {
		v_store_n(x + i, v_exp(v_sub(v_load_n(x + i, n - i), m)), n - i);
		sum = v_add(sum, v_load_n(x + i, n - i)); // lanes beyond n are 0 here
	}
	return v_sum(sum);
}

static float max_of(const float *x, int64_t n) {
	float largest = x[0];
	int64_t i = 0;
	if (n >= VW) {
		vec m = v_load(x);
		for (i = VW; i + VW <= n; i += VW) m = v_max(m, v_load(x + i));
		float lanes[VW];
		v_store(lanes, m);
		for (int l = 0; l < VW; l++) largest = lanes[l] > largest ? lanes[l] : largest;
	}
	for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
	return largest;
}
