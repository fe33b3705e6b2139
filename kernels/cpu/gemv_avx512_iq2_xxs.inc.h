// IQ2_XXS on 512-bit vectors, included by gemv_avx512.c after gemv_avx512.inc.h, inside a
// target section with VBMI and GFNI.
//
// A weight of a grid is 8, 25 or 43, with a sign. The tables hold not weights
// but two bits for each, as bit planes: bit j of a byte of plane A says that
// weight j of the entry is 43, of plane B that it is 25. So 256 entries fit
// eight vectors, in registers or the first-level cache, and look-ups are byte
// permutations. S is the plane of the signs and C = S & (A | B). Each bit of a
// weight + 128 is a sum modulo 2 of those four:
//
//	bit 7   1+S    bit 5   S+A    bit 3   1+C    bit 1   C+A
//	bit 6   S      bit 4   S+B    bit 2   C      bit 0   A+B
//
// vgf2p8affineqb with planes as its matrix turns eight bits of eight bytes into
// eight bytes; with a matrix of these sums it produces weights. Two rows are
// processed at once: their 64 entries fill one vector and their weights eight.
//
// Unpacked this way, an entry can be placed anywhere. Vector e has entry e of
// each of the eight groups, so that the dot products of a group accumulate in
// one sum and no reduction tree is needed. The activations are permuted to the
// same order once per tile.

// iq2_xxs_dwords gathers the dwords of both rows, the grid numbers (odd 0) or
// the signs and scales (odd 1): two of row 0, two of row 1 and so on.
INLINE __m512i iq2_xxs_dwords(__m512i x0, __m512i x1, int odd) {
	__m512i even = _mm512_set_epi32(30, 28, 14, 12, 26, 24, 10, 8, 22, 20, 6, 4, 18, 16, 2, 0);
	return _mm512_permutex2var_epi32(x0, _mm512_add_epi32(even, _mm512_set1_epi32(odd)), x1);
}

// iq2_xxs_plane looks 64 entries up in a table of 256 bytes.
INLINE __m512i iq2_xxs_plane(__m512i at, __mmask64 high, const uint8_t *table) {
	__m512i low = _mm512_permutex2var_epi8(load512(table), at, load512(table + 64));
	return _mm512_mask_blend_epi8(high, low, _mm512_permutex2var_epi8(load512(table + 128), at, load512(table + 192)));
}

// unpack_iq2_xxs: 66 bytes: d, and for each group of 32 four grid numbers and a
// word of four 7-bit sign indices and a 4-bit scale. The eighth sign makes the
// number of negative ones even. q[r][e] are the entries e of row r.
INLINE void unpack_iq2_xxs(const uint8_t *w0, const uint8_t *w1, __m512i q[2][4]) {
	__m512i x0 = load512(w0 + 2), x1 = load512(w1 + 2);
	__m512i at = iq2_xxs_dwords(x0, x1, 0);
	__m512i s = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), iq2_xxs_dwords(x0, x1, 1));
	s = _mm512_gf2p8affine_epi64_epi8(s, _mm512_set1_epi64(0x010204081020407f), 0); // bit 7: parity of the rest
	__mmask64 high = _mm512_movepi8_mask(at);
	__m512i a = iq2_xxs_plane(at, high, rm_iq2xxs_43), b = iq2_xxs_plane(at, high, rm_iq2xxs_25);
	__m512i c = _mm512_ternarylogic_epi32(s, a, b, 0xe0);
	// Each word is two entries, 0 and 1 or 2 and 3; in a lane four are of row 0, four of row 1.
	__m512i sa[2] = {_mm512_unpacklo_epi16(s, a), _mm512_unpackhi_epi16(s, a)};
	__m512i bc[2] = {_mm512_unpacklo_epi16(b, c), _mm512_unpackhi_epi16(b, c)};
	__m512i even = _mm512_set_epi32(30, 14, 28, 12, 26, 10, 24, 8, 22, 6, 20, 4, 18, 2, 16, 0);
	for (int r = 0; r < 2; r++) {
		for (int e = 0; e < 4; e += 2) {
			__m512i planes = _mm512_permutex2var_epi32(sa[r], _mm512_add_epi32(even, _mm512_set1_epi32(e / 2)), bc[r]);
			// a byte, from its highest bit: S of entry e, S of entry e+1, A, A, B, B, C, C
			__m512i bits = _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)0x8040201008040201), planes, 0);
			q[r][e] = _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x2822020288a08080), 0x88);
			q[r][e + 1] = _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x1411010144504040), 0x88);
		}
	}
}

// The scale is d times (n + 1/2)/4, where n is the highest four bits of the
// word: inserted into the mantissa of 4 they give 4 + (n + 1/2)/4.
INLINE __m512 scales_iq2_xxs(const uint8_t *w0, const uint8_t *w1) {
	__m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
	__m512i words = _mm512_srli_epi32(_mm512_permutex2var_epi32(load512(w0 + 2), odd, load512(w1 + 2)), 9);
	words = _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(0x00780000), _mm512_set1_epi32(0x40840000), 0xea);
	return _mm512_mul_ps(super_scale16(w0, w1), _mm512_sub_ps(_mm512_castsi512_ps(words), _mm512_set1_ps(4)));
}

// order_iq2_xxs permutes 256 bytes of activations to the order of the weights:
// four vectors by group, each of four 8-byte entries, become four by entry.
INLINE void order_iq2_xxs(const int8_t *src, int8_t *dst) {
	__m512i low = _mm512_set_epi64(13, 9, 5, 1, 12, 8, 4, 0), high = _mm512_add_epi64(low, _mm512_set1_epi64(2));
	__m512i x[4];
	for (int k = 0; k < 4; k++) x[k] = load512(src + 64 * k);
	for (int e = 0; e < 4; e += 2) { // entries e of four groups, then entries e+1
		__m512i a = _mm512_permutex2var_epi64(x[0], e ? high : low, x[1]), b = _mm512_permutex2var_epi64(x[2], e ? high : low, x[3]);
		_mm512_store_si512(dst + 64 * e, _mm512_shuffle_i64x2(a, b, 0x44));
		_mm512_store_si512(dst + 64 * e + 64, _mm512_shuffle_i64x2(a, b, 0xee));
	}
}

// dots_iq2_xxs multiplies a row by the ordered activations x: two sums per
// group.
INLINE __m512i dots_iq2_xxs(const __m512i q[4], const int8_t *x, int upper_only) {
	__m512i upper = _mm512_setzero_si512(), lower = _mm512_setzero_si512();
	for (int e = 0; e < 4; e++) {
		upper = _mm512_dpbusd_epi32(upper, q[e], load512(x + 64 * e));
		if (!upper_only) lower = _mm512_dpbusd_epi32(lower, q[e], load512(x + 256 + 64 * e));
	}
	return _mm512_add_epi32(_mm512_slli_epi32(upper, 7), lower);
}

// rows4_iq2_xxs is rows4 for this type. ordered has room for nt times 2*cols
// bytes.
INLINE void rows4_iq2_xxs(const uint8_t *const row[4], const quads *next, int64_t cols, const rm_act *x, const int8_t *ordered,
                          int nt, int upper_only, float out[4][4]) {
	__m512i first = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
	__m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
	__m512 acc[2][4];
	for (int n = 0; n < nt; n++) acc[0][n] = acc[1][n] = _mm512_setzero_ps();
	for (int64_t j = 0; 256 * j < cols; j++) {
		uintptr_t ahead = quads_ahead(next, 66 * j);
		RM_UNROLL
		for (int p = 0; p < 2; p++) {
			const uint8_t *w0 = row[2 * p] + 66 * j, *w1 = row[2 * p + 1] + 66 * j;
			rm_prefetch((uintptr_t)w0 + ahead, 66, 0);
			rm_prefetch((uintptr_t)w1 + ahead, 66, 0);
			__m512i q[2][4];
			unpack_iq2_xxs(w0, w1, q);
			__m512 s = scales_iq2_xxs(w0, w1);
			for (int n = 0; n < nt; n++) {
				const int8_t *at = ordered + 2 * cols * n + 512 * j;
				__m512i a = dots_iq2_xxs(q[0], at, upper_only), b = dots_iq2_xxs(q[1], at, upper_only);
				__m512i t = _mm512_add_epi32(_mm512_permutex2var_epi32(a, first, b), _mm512_permutex2var_epi32(a, second, b));
				t = _mm512_add_epi32(t, both(x[n].z + 8 * j));
				acc[p][n] = _mm512_fmadd_ps(_mm512_mul_ps(s, both_ps(x[n].d + 8 * j)), _mm512_cvtepi32_ps(t), acc[p][n]);
			}
		}
	}
	for (int n = 0; n < nt; n++) {
		for (int i = 0; i < 4; i++) {
			__m512 v = acc[i / 2][n];
			out[i][n] = sum8(i % 2 ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v));
		}
	}
}

// run_iq2_xxs computes a tile of nt tokens, a constant; the scratch has room
// for 16 unpacked rows of two bytes per column.
INLINE void run_iq2_xxs(int upper_only, const rm_tile *t, int nt) {
	int8_t *ordered = (int8_t *)t->scratch;
	rm_act x[4];
	for (int n = 0; n < nt; n++) {
		x[n] = rm_act_at(t->x[n], t->cols);
		int8_t *to = ordered + 2 * t->cols * n;
		for (int64_t i = 0; i < t->cols; i += 256) {
			order_iq2_xxs(x[n].q + i, to + 2 * i);
			order_iq2_xxs(x[n].r + i, to + 2 * i + 256);
		}
	}
	quads next = quads_of(t, (t->cols + 255) / 256 * 66);
	for (int64_t r = 0; r <= t->nrows / 4; r++, next.at += t->row_bytes) {
		const uint8_t *rows[4];
		int64_t first, step = four(t, r, rows, &first);
		if (step == 0) break;
		float out[4][4];
		rows4_iq2_xxs(rows, &next, t->cols, x, ordered, nt, upper_only, out);
		give(t, first, step, nt, out);
	}
}
