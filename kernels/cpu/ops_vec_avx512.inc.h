// A vector of 16 floats. See ops_kernels.inc.h for what the names mean.
typedef __m512 vec;
#define VW 16
#define VTILE 4 // rows of a register tile that holds VTILE*4 accumulators
#define VINLINE static inline __attribute__((always_inline))

VINLINE __mmask16 v_first(int64_t n) { return (__mmask16)((1u << n) - 1); }
VINLINE vec v_set(float x) { return _mm512_set1_ps(x); }
VINLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
VINLINE void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
VINLINE vec v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
VINLINE void v_store_n(float *p, vec x, int64_t n) { _mm512_mask_storeu_ps(p, v_first(n), x); }
VINLINE vec v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
VINLINE vec v_load_f16_n(const uint16_t *p, int64_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p)); }
VINLINE __m256i v_to_f16(vec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VINLINE void v_store_f16(uint16_t *p, vec x) { _mm256_storeu_si256((__m256i *)(void *)p, v_to_f16(x)); }
VINLINE void v_store_f16_n(uint16_t *p, vec x, int64_t n) { _mm256_mask_storeu_epi16(p, v_first(n), v_to_f16(x)); }
VINLINE vec v_abs(vec x) { return _mm512_abs_ps(x); }
VINLINE vec v_round_f16(vec x) {
	__mmask16 beyond = _mm512_cmp_ps_mask(v_abs(x), _mm512_set1_ps(RM_FLOAT16_END), _CMP_GE_OQ);
	return _mm512_mask_mov_ps(_mm512_cvtph_ps(v_to_f16(x)), beyond, x);
}
typedef __m512i v_ints;
VINLINE v_ints v_fixed(vec x) { return _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(0x1p24f))); }
VINLINE v_ints v_fixed_add(v_ints a, v_ints b) { return _mm512_add_epi32(a, b); }
VINLINE void v_fixed_store(int32_t *p, v_ints x) { _mm512_storeu_si512(p, x); }
VINLINE vec v_widen(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
VINLINE vec v_load_bf16(const uint16_t *p) { return v_widen(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
VINLINE vec v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen(_mm256_maskz_loadu_epi16(v_first(n), p)); }
VINLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
VINLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
VINLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
VINLINE vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
VINLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
VINLINE vec v_min(vec bound, vec x) { return _mm512_min_ps(bound, x); }
VINLINE vec v_max(vec bound, vec x) { return _mm512_max_ps(bound, x); }
VINLINE vec v_exp(vec x) { return rm_exp512(x); }
VINLINE float v_sum(vec x) {
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// v_halve adds the halves of a and of b, as v_sum does first.
VINLINE vec v_halve(vec a, vec b) {
	return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}
// v_quarter adds the quarters of four heads that v_halve leaves.
VINLINE vec v_quarter(vec a, vec b) {
	return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
// v_pairs adds the first two and the last two of every four lanes of a and of
// b.
VINLINE vec v_pairs(vec a, vec b) {
	__m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
	return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
VINLINE void v_sums(float *out, int64_t ld, vec a[VTILE][4], float factor) {
	vec key[4]; // of four heads the sums of every fourth lane
	for (int k = 0; k < 4; k++) key[k] = v_quarter(v_halve(a[0][k], a[1][k]), v_halve(a[2][k], a[3][k]));
	vec x = v_pairs(key[0], key[1]), y = v_pairs(key[2], key[3]);
	vec sums = _mm512_mul_ps(v_set(factor), _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd)));
	_mm_storeu_ps(out, _mm512_castps512_ps128(sums));
	_mm_storeu_ps(out + ld, _mm512_extractf32x4_ps(sums, 1));
	_mm_storeu_ps(out + 2 * ld, _mm512_extractf32x4_ps(sums, 2));
	_mm_storeu_ps(out + 3 * ld, _mm512_extractf32x4_ps(sums, 3));
}
