// The kernels that work in register tiles, and the table. In each of them every
// element of the result has its own accumulator that is summed in one order, so
// the shape of the tile does not affect the bits.

// dots_tile is K dot products with each of R rows; R, K and type are constants
// at every call.
VINLINE void dots_tile(float *out, int64_t ldo, const float *x, int64_t ldx, const uint8_t *w, int64_t row_bytes,
                       int64_t n, const int R, const int K, const int32_t type) {
	vec a[2][4][2];
	for (int r = 0; r < R; r++) {
		for (int k = 0; k < K; k++) a[r][k][0] = a[r][k][1] = v_set(0);
	}
	int64_t i = 0;
	for (; i + 2 * VW <= n; i += 2 * VW) {
		for (int u = 0; u < 2; u++) {
			vec wv[4];
			for (int k = 0; k < K; k++) wv[k] = load_typed(w + k * row_bytes, i + u * VW, type);
			for (int r = 0; r < R; r++) {
				vec xv = v_load(x + r * ldx + i + u * VW);
				for (int k = 0; k < K; k++) a[r][k][u] = v_fma(xv, wv[k], a[r][k][u]);
			}
		}
	}
	if (i + VW <= n) {
		for (int r = 0; r < R; r++) {
			vec xv = v_load(x + r * ldx + i);
			for (int k = 0; k < K; k++) a[r][k][0] = v_fma(xv, load_typed(w + k * row_bytes, i, type), a[r][k][0]);
		}
		i += VW;
	}
	if (i < n) {
		for (int r = 0; r < R; r++) {
			vec xv = v_load_n(x + r * ldx + i, n - i);
			for (int k = 0; k < K; k++) {
				a[r][k][1] = v_fma(xv, load_typed_n(w + k * row_bytes, i, n - i, type), a[r][k][1]);
			}
		}
	}
	for (int r = 0; r < R; r++) {
		for (int k = 0; k < K; k++) out[r * ldo + k] = v_sum(v_add(a[r][k][0], a[r][k][1]));
	}
}

VINLINE void dots_of(float *out, int64_t ldo, const float *x, int64_t ldx, int64_t rows, const uint8_t *w,
                     int64_t row_bytes, int64_t count, int64_t n, const int32_t type) {
	const int R = VTILE / 2;
	int64_t k = 0;
	for (; k + 4 <= count; k += 4) {
		int64_t r = 0;
		for (; r + R <= rows; r += R) {
			dots_tile(out + r * ldo + k, ldo, x + r * ldx, ldx, w + k * row_bytes, row_bytes, n, R, 4, type);
		}
		for (; r < rows; r++) {
			dots_tile(out + r * ldo + k, ldo, x + r * ldx, ldx, w + k * row_bytes, row_bytes, n, 1, 4, type);
		}
	}
	for (; k < count; k++) {
		for (int64_t r = 0; r < rows; r++) {
			dots_tile(out + r * ldo + k, ldo, x + r * ldx, ldx, w + k * row_bytes, row_bytes, n, 1, 1, type);
		}
	}
}

static void dots(float *out, int64_t ldo, const float *x, int64_t ldx, int64_t rows, const uint8_t *w,
                 int64_t row_bytes, int64_t count, int64_t n, int32_t type) {
	if (type == RM_TYPE_F16) {
		dots_of(out, ldo, x, ldx, rows, w, row_bytes, count, n, RM_TYPE_F16);
	} else if (type == RM_TYPE_BF16) {
		dots_of(out, ldo, x, ldx, rows, w, row_bytes, count, n, RM_TYPE_BF16);
	} else {
		dots_of(out, ldo, x, ldx, rows, w, row_bytes, count, n, RM_TYPE_F32);
	}
}

// Float16 elements in a cache line.
#define LINE 32

// index_tile scores E entries, E constant. keys are floats, [E][dim]. Memory at
// ahead, also [E][dim], is prefetched meanwhile, one line at a time: many at
// once would delay the queries.
VINLINE void index_tile(float *score, const float *qt, const float *w, int64_t groups, int64_t dim, const float *keys,
                        const uint16_t *ahead, const int E) {
	vec total[VTILE];
	for (int e = 0; e < E; e++) total[e] = v_set(0);
	for (int64_t g = 0; g < groups; g++) {
		for (int64_t lane = 0; lane < RM_INDEX_LANES; lane += 4 * VW) {
			const float *q = qt + g * dim * RM_INDEX_LANES + lane;
			const float *hw = w + g * RM_INDEX_LANES + lane;
			vec a[VTILE][4];
			for (int e = 0; e < E; e++) {
				for (int v = 0; v < 4; v++) a[e][v] = v_set(0);
			}
			for (int64_t d = 0; d < dim;) {
				int64_t end = dim - d < LINE / E ? dim : d + LINE / E;
				__builtin_prefetch(ahead + d * E);
				for (; d < end; d++, q += RM_INDEX_LANES) {
					vec qv[4];
					for (int v = 0; v < 4; v++) qv[v] = v_load(q + v * VW);
					for (int e = 0; e < E; e++) {
						vec key = v_set(keys[e * dim + d]);
						for (int v = 0; v < 4; v++) a[e][v] = v_fma(key, qv[v], a[e][v]);
					}
				}
			}
			for (int e = 0; e < E; e++) {
				for (int v = 0; v < 4; v++) {
					total[e] = v_fma(v_load(hw + v * VW), v_max(v_set(0), a[e][v]), total[e]);
				}
			}
		}
	}
	for (int e = 0; e < E; e++) score[e] = v_sum(total[e]);
}

static void index_scores(float *score, const float *qt, const float *w, int64_t groups, int64_t dim,
                         const uint16_t *keys, int64_t count, float *tmp) {
	int64_t e = 0;
	for (; e + VTILE <= count; e += VTILE) {
		// The keys after the next ones are prefetched while this tile is
		// computed.
		int64_t ahead = e + 3 * VTILE <= count ? e + 2 * VTILE : e;
		from_float16(tmp, keys + e * dim, VTILE * dim);
		index_tile(score + e, qt, w, groups, dim, tmp, keys + ahead * dim, VTILE);
	}
	for (; e < count; e++) {
		from_float16(tmp, keys + e * dim, dim);
		index_tile(score + e, qt, w, groups, dim, tmp, keys + e * dim, 1);
	}
}

// scores_tile: H heads with K keys, both constant.
VINLINE void scores_tile(float *score, int64_t lds, const float *q, const float *keys, int64_t dim, float scale,
                         const int H, const int K) {
	vec a[VTILE][4];
	for (int h = 0; h < H; h++) {
		for (int k = 0; k < K; k++) a[h][k] = v_set(0);
	}
	int64_t i = 0;
	for (; i + VW <= dim; i += VW) {
		vec kv[4];
		for (int k = 0; k < K; k++) kv[k] = v_load(keys + k * dim + i);
		for (int h = 0; h < H; h++) {
			vec qv = v_load(q + h * dim + i);
			for (int k = 0; k < K; k++) a[h][k] = v_fma(qv, kv[k], a[h][k]);
		}
	}
	if (i < dim) {
		for (int h = 0; h < H; h++) {
			vec qv = v_load_n(q + h * dim + i, dim - i);
			for (int k = 0; k < K; k++) a[h][k] = v_fma(qv, v_load_n(keys + k * dim + i, dim - i), a[h][k]);
		}
	}
	if (H == VTILE && K == 4) {
		v_sums(score, lds, a, scale);
		return;
	}
	for (int h = 0; h < H; h++) {
		for (int k = 0; k < K; k++) score[h * lds + k] = scale * v_sum(a[h][k]);
	}
}

static void attend_scores(float *score, int64_t lds, const float *q, int64_t heads, const float *keys, int64_t count,
                          int64_t dim, float factor, const uint16_t *const *ahead, int64_t coming) {
	int64_t h = 0, asked = 0;
	for (; h + VTILE <= heads; h += VTILE) {
		for (; asked * heads < coming * (h + VTILE); asked++) {
			for (int64_t i = 0; i < dim; i += LINE) __builtin_prefetch(ahead[asked] + i);
		}
		int64_t k = 0;
		for (; k + 4 <= count; k += 4) {
			scores_tile(score + h * lds + k, lds, q + h * dim, keys + k * dim, dim, factor, VTILE, 4);
		}
		for (; k < count; k++) {
			scores_tile(score + h * lds + k, lds, q + h * dim, keys + k * dim, dim, factor, VTILE, 1);
		}
	}
	for (; h < heads; h++) {
		for (int64_t k = 0; k < count; k++) {
			scores_tile(score + h * lds + k, lds, q + h * dim, keys + k * dim, dim, factor, 1, 1);
		}
	}
}

static void from_float16_rows(float *dst, const uint16_t *const *rows, int64_t from, int64_t count, int64_t n) {
	for (int64_t k = 0; k < count; k++, dst += n) {
		const uint16_t *row = rows[k] + from;
		int64_t i = 0;
		for (; i + 4 * VW <= n; i += 4 * VW) {
			for (int u = 0; u < 4; u++) v_store(dst + i + u * VW, v_load_f16(row + i + u * VW));
		}
		if (i < n) from_float16(dst + i, row + i, n - i);
	}
}

// values_tile: H heads, V vectors of channels, both constant. lanes < VW only
// with V == 1.
VINLINE void values_tile(float *out, int64_t ldo, const float *weight, int64_t ldw, const float *keys, int64_t ldk,
                         int64_t count, int64_t lanes, const int H, const int V) {
	vec a[VTILE][4];
	for (int h = 0; h < H; h++) {
		for (int v = 0; v < V; v++) {
			const float *p = out + h * ldo + v * VW;
			a[h][v] = lanes == VW ? v_load(p) : v_load_n(p, lanes);
		}
	}
	for (int64_t k = 0; k < count; k++) {
		vec kv[4];
		for (int v = 0; v < V; v++) {
			const float *p = keys + k * ldk + v * VW;
			kv[v] = lanes == VW ? v_load(p) : v_load_n(p, lanes);
		}
		for (int h = 0; h < H; h++) {
			vec w = v_set(weight[h * ldw + k]);
			for (int v = 0; v < V; v++) a[h][v] = v_fma(w, kv[v], a[h][v]);
		}
	}
	for (int h = 0; h < H; h++) {
		for (int v = 0; v < V; v++) {
			float *p = out + h * ldo + v * VW;
			if (lanes == VW) {
				v_store(p, a[h][v]);
			} else {
				v_store_n(p, a[h][v], lanes);
			}
		}
	}
}

VINLINE void values_rows(float *out, int64_t ldo, const float *weight, int64_t ldw, const float *keys, int64_t ldk,
                         int64_t count, int64_t n, const int H) {
	int64_t c = 0;
	for (; c + 4 * VW <= n; c += 4 * VW) values_tile(out + c, ldo, weight, ldw, keys + c, ldk, count, VW, H, 4);
	for (; c + VW <= n; c += VW) values_tile(out + c, ldo, weight, ldw, keys + c, ldk, count, VW, H, 1);
	if (c < n) values_tile(out + c, ldo, weight, ldw, keys + c, ldk, count, n - c, H, 1);
}

static void attend_values(float *out, int64_t ldo, const float *weight, int64_t ldw, int64_t heads, const float *keys,
                          int64_t ldk, int64_t count, int64_t n) {
	int64_t h = 0;
	for (; h + VTILE <= heads; h += VTILE) {
		values_rows(out + h * ldo, ldo, weight + h * ldw, ldw, keys, ldk, count, n, VTILE);
	}
	for (; h < heads; h++) values_rows(out + h * ldo, ldo, weight + h * ldw, ldw, keys, ldk, count, n, 1);
}

const rm_op_kernels RM_KERNELS = {
	.sum_squares = sum_squares,
	.scale = scale,
	.dots = dots,
	.add = add,
	.add_typed = add_typed,
	.swiglu = swiglu,
	.sum_slots = sum_slots,
	.sum_exact = sum_exact,
	.round_sums = round_sums,
	.to_float16 = to_float16,
	.from_float16 = from_float16,
	.hadamard = hadamard,
	.collapse = collapse,
	.expand = expand,
	.pool_channels = pool_channels,
	.index_scores = index_scores,
	.from_float16_rows = from_float16_rows,
	.attend_scores = attend_scores,
	.attend_values = attend_values,
	.exp_sum = exp_sum,
	.max = max_of,
};
