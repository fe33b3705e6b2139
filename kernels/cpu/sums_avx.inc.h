// Sums of the lanes of 256-bit vectors, included by matmul_vec256.inc.h, gemv_avx2.inc.h and
// gemv_avx512.inc.h inside their target sections.

// sum8 is rm_sum8.
INLINE float sum8(__m256 v) {
	__m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	__m128 p = _mm_add_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_add_ss(p, _mm_movehdup_ps(p)));
}

// give_lanes stores the sums of the lanes of a row and token: rm_give_sums.
INLINE void give_lanes(const rm_tile *t, int64_t row, int token, int64_t time, __m256 v) {
	float *out = t->out[token] + t->off + row;
	if (!t->sums.each) {
		out[time * t->sums.apart] = sum8(v);
		return;
	}
	float lanes[8];
	_mm256_storeu_ps(lanes, v);
	rm_give_sums(&t->sums, time, lanes, out);
}
