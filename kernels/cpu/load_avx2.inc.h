// Loads and small helpers for 256-bit vectors, included by matmul_vec256.inc.h and
// gemv_avx2.c inside their target sections.

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE __m256 half1(const uint8_t *p) { return _mm256_set1_ps(_cvtsh_ss(rm_load16(p))); }
INLINE __m256i table32(const int8_t *table) { return _mm256_broadcastsi128_si256(load128(table)); }

// load_nvfp4 converts a block of NVFP4: 16 weights have a scale and eight bytes, the first eight
// in their low nibbles.
INLINE void load_nvfp4(const uint8_t *block, __m256 w[8]) {
	__m256i q = load256(block + 4), nibble = _mm256_set1_epi8(15), table = table32(rm_mxfp4_values);
	__m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(q, nibble));
	__m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble));
	__m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
	__m128i v[4] = {_mm256_castsi256_si128(even), _mm256_castsi256_si128(odd), _mm256_extracti128_si256(even, 1), _mm256_extracti128_si256(odd, 1)};
	for (int k = 0; k < 4; k++) {
		__m256 d = _mm256_set1_ps(rm_nvfp4_scales[block[k]]);
		w[2 * k] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v[k])), d);
		w[2 * k + 1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v[k], 8))), d);
	}
}

// scales_k unpacks the 8 scales and 8 minima of Q4_K and Q5_K from their 12
// bytes to bytes 0..7 and 8..15.
INLINE __m128i scales_k(const uint8_t *s) {
	uint32_t a = rm_load32(s), b = rm_load32(s + 4), c = rm_load32(s + 8);
	uint32_t sc_low = a & 0x3f3f3f3f, min_low = b & 0x3f3f3f3f;
	uint32_t sc_high = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
	uint32_t min_high = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
	return _mm_set_epi32((int)min_high, (int)min_low, (int)sc_high, (int)sc_low);
}
