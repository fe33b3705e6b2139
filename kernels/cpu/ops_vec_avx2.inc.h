// A vector of 8 floats. See ops_kernels.inc.h for what the names mean.
typedef __m256 vec;
#define VW 8
#define VTILE 2 // rows of a register tile that holds VTILE*4 accumulators
#define VINLINE static inline __attribute__((always_inline))

VINLINE __m256i v_first(int64_t n) {
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VINLINE vec v_set(float x) { return _mm256_set1_ps(x); }
VINLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
VINLINE void v_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
VINLINE vec v_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, v_first(n)); }
VINLINE void v_store_n(float *p, vec x, int64_t n) { _mm256_maskstore_ps(p, v_first(n), x); }
VINLINE __m128i v_words(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
VINLINE __m128i v_words_n(const uint16_t *p, int64_t n) {
	uint16_t w[8] = {0};
	memcpy(w, p, (size_t)n * 2);
	return v_words(w);
}
VINLINE vec v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(v_words(p)); }
VINLINE vec v_load_f16_n(const uint16_t *p, int64_t n) { return _mm256_cvtph_ps(v_words_n(p, n)); }
VINLINE __m128i v_to_f16(vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VINLINE void v_store_f16(uint16_t *p, vec x) { _mm_storeu_si128((__m128i *)(void *)p, v_to_f16(x)); }
VINLINE void v_store_f16_n(uint16_t *p, vec x, int64_t n) {
	uint16_t w[8];
	v_store_f16(w, x);
	memcpy(p, w, (size_t)n * 2);
}
VINLINE vec v_abs(vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
VINLINE vec v_round_f16(vec x) {
	vec beyond = _mm256_cmp_ps(v_abs(x), _mm256_set1_ps(RM_FLOAT16_END), _CMP_GE_OQ);
	return _mm256_blendv_ps(_mm256_cvtph_ps(v_to_f16(x)), x, beyond);
}
typedef __m256i v_ints;
VINLINE v_ints v_fixed(vec x) { return _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(0x1p24f))); }
VINLINE v_ints v_fixed_add(v_ints a, v_ints b) { return _mm256_add_epi32(a, b); }
VINLINE void v_fixed_store(int32_t *p, v_ints x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
VINLINE vec v_widen(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
VINLINE vec v_load_bf16(const uint16_t *p) { return v_widen(v_words(p)); }
VINLINE vec v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen(v_words_n(p, n)); }
VINLINE vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
VINLINE vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
VINLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
VINLINE vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
VINLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
VINLINE vec v_min(vec bound, vec x) { return _mm256_min_ps(bound, x); }
VINLINE vec v_max(vec bound, vec x) { return _mm256_max_ps(bound, x); }
VINLINE vec v_exp(vec x) { return rm_exp256(x); }
VINLINE float v_sum(vec x) {
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// v_halve adds the halves of a and of b, as v_sum does first.
VINLINE vec v_halve(vec a, vec b) {
	return _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
}
// v_pairs adds the first two and the last two of every four lanes of a and of
// b.
VINLINE vec v_pairs(vec a, vec b) {
	__m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
	return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
VINLINE void v_sums(float *out, int64_t ld, vec a[VTILE][4], float factor) {
	vec key[4]; // of two heads the sums of every fourth lane
	for (int k = 0; k < 4; k++) key[k] = v_halve(a[0][k], a[1][k]);
	vec x = v_pairs(key[0], key[1]), y = v_pairs(key[2], key[3]);
	vec sums = _mm256_mul_ps(v_set(factor), _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd)));
	_mm_storeu_ps(out, _mm256_castps256_ps128(sums));
	_mm_storeu_ps(out + ld, _mm256_extractf128_ps(sums, 1));
}
