// The float32 kernel (rm_dense_fn), included by matmul_avx2.c and matmul_avx512.c inside their
// target section. The including file defines
//   dense_columns: adds the products of columns [from, to) to the sums [nr][RM_DENSE_TOKENS][16]
//                  of nr <= 4 rows and nt tokens from number first on, which begin with column 0;
//                  `to` is a multiple of 16 or the end of the rows
//   dense_sum:     rm_sum16
//   DENSE_AT_ONCE: the most nt
//
// Some tokens are multiplied by all rows, some columns at a time, so that the activations come
// from memory once for all rows, and rows and activations from the first cache. Between two
// parts of the columns the sums wait in memory lane by lane, so they are those of one pass.

#define DENSE_COLS 512

INLINE void dense_tokens(const uint8_t *const *rows, int64_t nr, int64_t from, int64_t to, const float *const *x,
                         int64_t first, int nt, float (*sums)[RM_DENSE_TOKENS][16]) {
	int64_t r = 0;
	for (; r + 4 <= nr; r += 4) dense_columns(rows + r, 4, from, to, x, first, nt, sums + r);
	for (; r < nr; r++) dense_columns(rows + r, 1, from, to, x, first, nt, sums + r);
}

static void dense(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                  float *const *out, int64_t off) {
	_Alignas(64) float sums[RM_DENSE_ROWS][RM_DENSE_TOKENS][16];
	enum { TOKENS = RM_DENSE_TOKENS / DENSE_AT_ONCE * DENSE_AT_ONCE };
	for (int64_t first = 0; first < nx; first += TOKENS) {
		int64_t n = nx - first < TOKENS ? nx - first : TOKENS;
		for (int64_t from = 0; from < cols; from += DENSE_COLS) {
			int64_t to = cols - from < DENSE_COLS ? cols : from + DENSE_COLS, t = 0;
			for (; t + DENSE_AT_ONCE <= n; t += DENSE_AT_ONCE) {
				dense_tokens(rows, nr, from, to, x + first, t, DENSE_AT_ONCE, sums);
			}
			for (; t + 2 <= n; t += 2) dense_tokens(rows, nr, from, to, x + first, t, 2, sums);
			for (; t < n; t++) dense_tokens(rows, nr, from, to, x + first, t, 1, sums);
		}
		for (int64_t t = 0; t < n; t++) {
			for (int64_t r = 0; r < nr; r++) out[first + t][off + r] = dense_sum(sums[r][t]);
		}
	}
}
