// Slabs: 16 weight rows unpacked for AMX, included by matmul_avx512.c inside its
// target section, before matmul_amx.inc.h.

// slab is 16 rows of weights; group 8*j+lane is number lane*supers + j. Rows
// beyond the matrix are zero.
typedef struct {
	int64_t supers;
	int8_t *w; // [groups][planes][16][32]: values; two planes: w = 128*plane 0 + plane 1
	float *s;  // [groups][16]
	float *m0; // [groups][16], types with minima
	float *m1; // [groups][16], MIN_16
} slab;

// SLAB_GROUP is the number of bytes of one group, at most RM_PANEL_GROUP.
#define SLAB_GROUP(planes) (512 * (planes) + 3 * 64)

INLINE slab slab_at(uint8_t *mem, int64_t groups, int planes) {
	slab p = {.supers = groups / 8, .w = (int8_t *)mem, .s = (float *)(void *)(mem + 512 * planes * groups)};
	p.m0 = p.s + 16 * groups;
	p.m1 = p.m0 + 16 * groups;
	return p;
}

// store_group stores q of group g in the slab's format: 32 bytes per plane.
INLINE void store_group(const super *u, int kind, int planes, int g, int8_t *dst) {
	__m256i q = u->q[g];
	if (planes == 2) { // KIND_SK whose products exceed a byte (Q6_K): at most 2^12
		__m256i low = _mm256_broadcastsi128_si256(_mm256_castsi256_si128(u->k[g]));
		__m256i high = _mm256_broadcastsi128_si256(_mm256_extracti128_si256(u->k[g], 1));
		__m256i p0 = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)), low);
		__m256i p1 = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)), high);
		__m256i half = _mm256_set1_epi16(64);
		__m256i h0 = _mm256_srai_epi16(_mm256_add_epi16(p0, half), 7);
		__m256i h1 = _mm256_srai_epi16(_mm256_add_epi16(p1, half), 7);
		p0 = _mm256_sub_epi16(p0, _mm256_slli_epi16(h0, 7));
		p1 = _mm256_sub_epi16(p1, _mm256_slli_epi16(h1, 7));
		// packs works within 128-bit halves; the permutation restores the
		// order.
		_mm256_storeu_si256((__m256i *)(void *)dst, _mm256_permute4x64_epi64(_mm256_packs_epi16(h0, h1), 0xd8));
		_mm256_storeu_si256((__m256i *)(void *)(dst + 512), _mm256_permute4x64_epi64(_mm256_packs_epi16(p0, p1), 0xd8));
		return;
	}
	if (kind == KIND_UK) { // at most 3*15: no carry from one byte to the next
		q = _mm256_mullo_epi16(q, u->k[g]);
	} else if (kind == KIND_SK) { // -scale*q, in [-128, 124]; the float scale is negated
		__m256i low = _mm256_set1_epi16(255);
		__m256i even = _mm256_and_si256(_mm256_mullo_epi16(_mm256_and_si256(q, low), u->k[g]), low);
		__m256i odd = _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(q, 8), u->k[g]), 8);
		q = _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_or_si256(even, odd));
	}
	_mm256_storeu_si256((__m256i *)(void *)dst, q);
}

// pack_slab fills a slab from nrows <= 16 rows.
INLINE void pack_slab(unpack_fn unpack, int kind, int min, int planes, int bytes, const uint8_t *w, int64_t row_bytes,
                      int64_t nrows, int64_t cols, const slab *p) {
	_Alignas(64) float s[16][8], m0[16][8], m1[16][8];
	if (nrows < 16) {
		memset(p->w, 0, (size_t)(4096 * planes * p->supers));
		memset(s, 0, sizeof s);
		memset(m0, 0, sizeof m0);
		memset(m1, 0, sizeof m1);
	}
	int64_t lane = 512 * planes * p->supers;
	for (int64_t j = 0; j < p->supers; j++, w += bytes) {
		int64_t left = (cols - 256 * j) / 32;
		for (int64_t r = 0; r < nrows; r++) {
			super u;
			const uint8_t *block = w + r * row_bytes;
			prefetch_next(block, bytes, 16 * row_bytes);
			if (left >= 8) {
				unpack(block, 8, &u);
			} else {
				unpack(block, (int)left, &u);
			}
			int8_t *dst = p->w + 512 * planes * j + 32 * r;
			for (int g = 0; g < 8; g++) store_group(&u, kind, planes, g, dst + lane * g);
			_mm256_store_ps(s[r], kind == KIND_SK && planes == 1 ? _mm256_xor_ps(u.s, _mm256_set1_ps(-0.0f)) : u.s);
			if (min != MIN_NONE) _mm256_store_ps(m0[r], u.m0);
			if (min == MIN_16) _mm256_store_ps(m1[r], u.m1);
		}
		p_float_columns(s, p->s + 16 * j, 16 * p->supers);
		if (min != MIN_NONE) p_float_columns(m0, p->m0 + 16 * j, 16 * p->supers);
		if (min == MIN_16) p_float_columns(m1, p->m1 + 16 * j, 16 * p->supers);
	}
}
