// Transposes of 512-bit vectors, included by matmul_avx512.c inside its target
// section.

// transpose16v transposes 16 vectors of 16 dwords.
INLINE void transpose16v(const __m512i v[16], __m512i out[16]) {
	__m512i a[16], b[16];
	for (int i = 0; i < 16; i += 2) {
		b[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
		b[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
	}
	// a[4i+c] has column c of each 128-bit quarter for rows 4i..4i+3.
	for (int i = 0; i < 16; i += 4) {
		a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
		a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
		a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
		a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
	}
	for (int c = 0; c < 4; c++) {
		__m512i x = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88), y = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
		__m512i z = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd), w = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
		out[c] = _mm512_shuffle_i32x4(x, y, 0x88);
		out[4 + c] = _mm512_shuffle_i32x4(z, w, 0x88);
		out[8 + c] = _mm512_shuffle_i32x4(x, y, 0xdd);
		out[12 + c] = _mm512_shuffle_i32x4(z, w, 0xdd);
	}
}

// columns8 transposes 16 rows of 8 floats, rows i and i+4 (i < 4), 8+i and 12+i
// in r[i], r[4+i], into 8 columns of 16.
INLINE void columns8(const __m512 r[8], __m512 out[8]) {
	__m512 a[8], b[8];
	for (int i = 0; i < 8; i += 2) {
		a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
		a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a[i]), _mm512_castps_pd(a[i + 2])));
		b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a[i]), _mm512_castps_pd(a[i + 2])));
		b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a[i + 1]), _mm512_castps_pd(a[i + 3])));
		b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a[i + 1]), _mm512_castps_pd(a[i + 3])));
	}
	for (int c = 0; c < 4; c++) {
		out[c] = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
		out[4 + c] = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
	}
}

INLINE __m512 two_rows(const float *low, const float *high) {
	return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1);
}

// p_float_columns transposes 16 rows of 8 floats; the columns are written
// `step` floats apart.
INLINE void p_float_columns(float (*src)[8], float *dst, int64_t step) {
	__m512 r[8], c[8];
	for (int i = 0; i < 4; i++) {
		r[i] = two_rows(src[i], src[4 + i]);
		r[4 + i] = two_rows(src[8 + i], src[12 + i]);
	}
	columns8(r, c);
	for (int l = 0; l < 8; l++) _mm512_storeu_ps(dst + step * l, c[l]);
}
