// Loads of 512-bit vectors for kernels of quantised weights, included by gemv_avx512.inc.h
// and matmul_amx_unpack.inc.h inside their target sections.

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }
INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
// both loads 32 bytes into both halves of a vector, twice loads 32 bytes from each of
// two addresses.
INLINE __m512i both(const void *p) { return _mm512_broadcast_i64x4(load256(p)); }
INLINE __m512i twice(const void *p, const void *q) { return _mm512_inserti64x4(_mm512_castsi256_si512(load256(p)), load256(q), 1); }
// pick selects a where mask has a bit set, else b.
INLINE __m512i pick(__m512i mask, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }

// offset_table broadcasts a table of 16 signed values, + 128, to every lane.
INLINE __m512i offset_table(const int8_t *values) {
	return _mm512_xor_si512(_mm512_broadcast_i32x4(load128(values)), _mm512_set1_epi8((char)0x80));
}
