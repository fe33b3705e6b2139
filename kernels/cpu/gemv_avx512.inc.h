// GEMV for one to four tokens on 512-bit vectors, included by gemv_avx512.c
// inside its target section.
//
// Four rows are processed at once, one from each quarter of the tile: a core
// reads four streams of memory 1.5 times as fast as one (performance.md,
// "Decode"). Weights are unpacked to unsigned bytes, with an offset if they are
// signed, and multiplied by the two bytes of the activations with vpdpbusd; the
// contribution of the offset is subtracted from the integer result by means of
// the sums that rm_act holds. The eight dot products of a row are reduced by a
// tree of unpacks, and two rows share the float arithmetic.

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }
INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
// both loads 32 bytes into both halves of a vector, or 32 bytes from each of
// two addresses.
INLINE __m512i both(const void *p) { return _mm512_broadcast_i64x4(load256(p)); }
INLINE __m512i twice(const void *p, const void *q) { return _mm512_inserti64x4(_mm512_castsi256_si512(load256(p)), load256(q), 1); }
// halves is a in the low and b in the high half, as bytes or 16-bit words.
INLINE __m512i halves8(int a, int b) {
	return _mm512_inserti64x4(_mm512_set1_epi8((char)a), _mm256_set1_epi8((char)b), 1);
}
INLINE __m512i halves16(int a, int b) {
	return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}
// pick selects a where mask has a bit set, else b.
INLINE __m512i pick(__m512i mask, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }

// Corrections that a type's integers need after the dot products; combined with
// or.
enum {
	OFFSET = 1,   // bytes are the weight + 128
	OFFSET16 = 2, // bytes are the weight + a power of two (row_kind.offsets), with SUB
	SUB = 4,      // an integer scale for each 16 columns
	MIN32 = 8,    // a minimum for each 32 columns
	MIN16 = 16,   // for each 16
	SHIFT = 32,   // some groups' bytes are the weight times a power of two
	FAR = 64,     // weights are prefetched into the second-level cache only
	UPPER = 128,  // the lower bytes of the activations are zero
};

// scale_pair holds the float scales of 256 columns of two rows: lanes 0..7 are
// the groups of the first row. m0 and m1 are minima, to be subtracted.
typedef struct {
	__m512 s, m0, m1;
} scale_pair;

typedef void (*unpack512)(const uint8_t *w, __m512i q[4]);
typedef void (*scales512)(const uint8_t *w0, const uint8_t *w1, scale_pair *s);
typedef __m128i (*sub512)(const uint8_t *w); // 16 int8 scales in the order of the columns

// row_kind describes the kernel of a type; it is a constant at every use.
typedef struct {
	unpack512 unpack;
	scales512 scales;
	sub512 sub;
	int flags, bytes; // of 256 columns
	int shifts;       // SHIFT: bits by which group g is shifted, at 4*g
	int offsets;      // OFFSET16: the same for the sums of rm_act, -32 times too large
} row_kind;

// with adds flags to a kind.
INLINE row_kind with(row_kind k, int flags) {
	k.flags |= flags;
	return k;
}

// nibble_lanes puts nibble g of packed into lane g of each half.
INLINE __m512i nibble_lanes(int packed) {
	__m256i shift = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
	__m256i v = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(packed), shift), _mm256_set1_epi32(15));
	return _mm512_broadcast_i64x4(v);
}

// The dot products of a row leave the tree in this order: 32-bit lane 4*l+k is
// the first half of group 2k for l = 0, its second half for l = 1, and those of
// group 2k+1 for l = 2 and 3.
INLINE __m512i tree(const __m512i q[4], const int8_t *upper, const int8_t *lower, int flags) {
	__m512i t[4];
	for (int k = 0; k < 4; k++) {
		__m512i u = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[k], load512(upper + 64 * k));
		t[k] = flags & UPPER ? u : _mm512_dpbusd_epi32(_mm512_slli_epi32(u, 7), q[k], load512(lower + 64 * k));
	}
	__m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
	__m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
	__m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
	return flags & UPPER ? _mm512_slli_epi32(sums, 7) : sums;
}

// pair adds up the halves of the groups of two rows: lanes 0..7 belong to a.
INLINE __m512i pair(__m512i a, __m512i b) {
	__m512i first = _mm512_set_epi32(27, 19, 26, 18, 25, 17, 24, 16, 11, 3, 10, 2, 9, 1, 8, 0);
	__m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
	return _mm512_add_epi32(_mm512_permutex2var_epi32(a, first, b), _mm512_permutex2var_epi32(a, second, b));
}

// sub_scales permutes 16 scales into the order of the tree.
INLINE __m512i sub_scales(__m128i natural) {
	__m128i order = _mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
	return _mm512_cvtepi8_epi32(_mm_shuffle_epi8(natural, order));
}

INLINE __m512 both_ps(const float *p) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(p)); }

INLINE float sum8(__m256 v) { // rm_sum8
	__m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	__m128 p = _mm_add_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_add_ss(p, _mm_movehdup_ps(p)));
}

// PREFETCH is the prefetch distance in bytes of weights that are read.
#define PREFETCH 2048

// quads says where rounds of four rows of a tile read ahead: further along their rows,
// and at the end of a quarter of the tile in the same quarter of the next tile.
typedef struct {
	rm_ahead row;
	int64_t quarter; // bytes of a quarter of the tile
	int64_t jump;    // from the end of a quarter to the same quarter of the next tile
	int64_t at;      // of the rows of this round in their quarters
} quads;

INLINE quads quads_of(const rm_tile *t, int64_t bytes) {
	int64_t quarter = t->nrows / 4 * t->row_bytes;
	int64_t next = t->next ? (int64_t)((uintptr_t)t->next - (uintptr_t)t->w) - quarter : 0; // may be another matrix
	return (quads){rm_ahead_of(bytes, t->row_bytes, PREFETCH), quarter, next, 0};
}

// quads_ahead is the distance to prefetch at byte i of the rows.
INLINE uintptr_t quads_ahead(const quads *q, int64_t i) {
	int64_t ahead = (int64_t)rm_ahead_from(&q->row, i);
	return (uintptr_t)(ahead + (q->at + i + ahead >= q->quarter ? q->jump : 0));
}

// rows4 computes four rows times nt tokens, a constant: out[row][token].
INLINE void rows4(row_kind k, const uint8_t *const row[4], const quads *next, int64_t cols, const rm_act *x, int nt,
                  float out[4][4]) {
	const uint8_t *w[4] = {row[0], row[1], row[2], row[3]};
	__m512 acc[2][4];
	for (int n = 0; n < nt; n++) acc[0][n] = acc[1][n] = _mm512_setzero_ps();
	for (int64_t g = 0; 32 * g < cols; g += 8) {
		uintptr_t ahead = quads_ahead(next, g / 8 * k.bytes);
		__m512i z16[4];
		for (int n = 0; n < nt && (k.flags & OFFSET16); n++) {
			__m512i order = _mm512_set_epi32(23, 21, 19, 17, 7, 5, 3, 1, 22, 20, 18, 16, 6, 4, 2, 0);
			z16[n] = _mm512_permutex2var_epi32(_mm512_castsi256_si512(load256(x[n].z0 + g)), order,
			                                   _mm512_castsi256_si512(load256(x[n].z1 + g)));
			z16[n] = _mm512_srav_epi32(z16[n], _mm512_permutexvar_epi32(_mm512_and_si512(order, _mm512_set1_epi32(7)),
			                                                            nibble_lanes(k.offsets)));
		}
		for (int p = 0; p < 2; p++) {
			__m512i q[2][4], sub[2];
			for (int i = 0; i < 2; i++) {
				const uint8_t *at = w[2 * p + i];
				rm_prefetch((uintptr_t)at + ahead, k.bytes, k.flags & FAR);
				k.unpack(at, q[i]);
				if (k.flags & SUB) sub[i] = sub_scales(k.sub(at));
			}
			scale_pair s;
			k.scales(w[2 * p], w[2 * p + 1], &s);
			for (int n = 0; n < nt; n++) {
				__m512i dots[2];
				for (int i = 0; i < 2; i++) {
					dots[i] = tree(q[i], x[n].q + 32 * g, x[n].r + 32 * g, k.flags);
					if (k.flags & OFFSET16) dots[i] = _mm512_add_epi32(dots[i], z16[n]);
					if (k.flags & SUB) dots[i] = _mm512_mullo_epi32(dots[i], sub[i]);
				}
				__m512i t = pair(dots[0], dots[1]);
				if (k.flags & SHIFT) t = _mm512_srav_epi32(t, nibble_lanes(k.shifts));
				if (k.flags & OFFSET) t = _mm512_add_epi32(t, both(x[n].z + g));
				__m512 sum = acc[p][n];
				if (k.flags & MIN32) sum = _mm512_fnmadd_ps(s.m0, both_ps(x[n].b + g), sum);
				if (k.flags & MIN16) {
					sum = _mm512_fnmadd_ps(s.m0, both_ps(x[n].b0 + g), sum);
					sum = _mm512_fnmadd_ps(s.m1, both_ps(x[n].b1 + g), sum);
				}
				acc[p][n] = _mm512_fmadd_ps(_mm512_mul_ps(s.s, both_ps(x[n].d + g)), _mm512_cvtepi32_ps(t), sum);
			}
		}
		for (int i = 0; i < 4; i++) w[i] += k.bytes;
	}
	for (int n = 0; n < nt; n++) {
		for (int i = 0; i < 4; i++) {
			__m512 v = acc[i / 2][n];
			out[i][n] = sum8(i % 2 ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v));
		}
	}
}

// four lists the four rows of round r of a tile, one from each quarter. The
// round after the last full one has the rows left over when four does not
// divide the count; its last row may be repeated. It returns the distance
// between the rows, 0 if there is no such round.
INLINE int64_t four(const rm_tile *t, int64_t r, const uint8_t *rows[4], int64_t *first) {
	int64_t quarter = t->nrows / 4, last = t->nrows - 1, step = r < quarter ? quarter : 1;
	*first = r < quarter ? r : 4 * quarter;
	if (*first > last) return 0;
	for (int i = 0; i < 4; i++) {
		int64_t n = *first + i * step;
		rows[i] = t->w + (n < last ? n : last) * t->row_bytes;
	}
	return step;
}

// give stores the results of the rows that `four` listed.
INLINE void give(const rm_tile *t, int64_t first, int64_t step, int nt, float out[4][4]) {
	for (int i = 0; i < 4 && first + i * step < t->nrows; i++) {
		for (int n = 0; n < nt; n++) t->out[n][t->off + first + i * step] = out[i][n];
	}
}

// run_rows computes a tile of nt tokens, a constant.
INLINE void run_rows(row_kind k, const rm_tile *t, int nt) {
	rm_act x[4];
	for (int n = 0; n < nt; n++) x[n] = rm_act_at(t->x[n], t->cols);
	quads next = quads_of(t, (t->cols + 255) / 256 * k.bytes);
	for (int64_t r = 0; r <= t->nrows / 4; r++, next.at += t->row_bytes) {
		const uint8_t *rows[4];
		int64_t first, step = four(t, r, rows, &first);
		if (step == 0) break;
		float out[4][4];
		rows4(k, rows, &next, t->cols, x, nt, out);
		give(t, first, step, nt, out);
	}
}

// ---- types with one scale per 32 columns ------------------------------------

// four16 gathers four 16-bit words that lie `stride` bytes apart.
INLINE long long four16(const uint8_t *p, int stride) {
	return (long long)((uint64_t)rm_load16(p) | (uint64_t)rm_load16(p + stride) << 16 | (uint64_t)rm_load16(p + 2 * stride) << 32 |
	                   (uint64_t)rm_load16(p + 3 * stride) << 48);
}

INLINE void scales_half(const uint8_t *w0, const uint8_t *w1, int stride, scale_pair *s) {
	s->s = _mm512_cvtph_ps(_mm256_set_epi64x(four16(w1 + 4 * stride, stride), four16(w1, stride), four16(w0 + 4 * stride, stride),
	                                         four16(w0, stride)));
}

INLINE void scales_q8_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { scales_half(w0, w1, 34, s); }

INLINE void unpack_q8_0(const uint8_t *w, __m512i q[4]) {
	for (int i = 0; i < 4; i++) {
		q[i] = _mm512_xor_si512(twice(w + 68 * i + 2, w + 68 * i + 36), _mm512_set1_epi8((char)0x80));
	}
}

// nibbles2 spreads two times 16 bytes: low nibbles first, then high ones.
INLINE __m512i nibbles2(const uint8_t *a, const uint8_t *b) {
	__m512i v = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load128(a)), 0xff00, load128(b));
	__m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
	return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

INLINE void scales_q4_0(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { scales_half(w0, w1, 18, s); }

INLINE void unpack_q4_0(const uint8_t *w, __m512i q[4]) {
	for (int i = 0; i < 4; i++) {
		q[i] = _mm512_add_epi8(nibbles2(w + 36 * i + 2, w + 36 * i + 20), _mm512_set1_epi8(120));
	}
}

// offset_table broadcasts a table of 16 signed values, + 128, to every lane.
INLINE __m512i offset_table(const int8_t *values) {
	return _mm512_xor_si512(_mm512_broadcast_i32x4(load128(values)), _mm512_set1_epi8((char)0x80));
}

INLINE void unpack_iq4_nl(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_iq4nl_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 36 * i + 2, w + 36 * i + 20));
}

INLINE void unpack_mxfp4(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_mxfp4_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 34 * i + 1, w + 34 * i + 18));
}

INLINE void scales_mxfp4(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	// As words and not as bytes: gcc builds a vector of 16 bytes through memory, three times as slow.
	__m512i e = _mm512_cvtepu16_epi32(_mm256_set_epi64x(four16(w1 + 4 * 17, 17), four16(w1, 17), four16(w0 + 4 * 17, 17), four16(w0, 17)));
	e = _mm512_and_si512(e, _mm512_set1_epi32(255));
	// 2^(e-128), subnormal for e of 0 and 1: rm_mxfp4_scale.
	__m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
	__mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
	s->s = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

INLINE void unpack_iq4_xs(const uint8_t *w, __m512i q[4]) {
	__m512i table = offset_table(rm_iq4nl_values);
	for (int i = 0; i < 4; i++) q[i] = _mm512_shuffle_epi8(table, nibbles2(w + 32 * i + 8, w + 32 * i + 24));
}

// two32 has a in lanes 0..7 and b in lanes 8..15.
INLINE __m512i two32(uint32_t a, uint32_t b) { return _mm512_mask_set1_epi32(_mm512_set1_epi32((int)a), 0xff00, (int)b); }

// super_scales broadcasts the one or two float16 values at the start of a
// super-block, for two rows: the low ones to `first`, the high ones to
// `second`.
INLINE void super_scales(const uint8_t *at0, const uint8_t *at1, __m512 *first, __m512 *second) {
	__m128 f = _mm_cvtph_ps(_mm_set_epi32(0, 0, (int)rm_load32(at1), (int)rm_load32(at0)));
	__m512 v = _mm512_castps128_ps512(f);
	__m512i low = _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
	*first = _mm512_permutexvar_ps(low, v);
	if (second) *second = _mm512_permutexvar_ps(_mm512_add_epi32(low, _mm512_set1_epi32(1)), v);
}

INLINE __m512 super_scale16(const uint8_t *at0, const uint8_t *at1) {
	__m512 f;
	__m128i h = _mm_cvtsi32_si128((int)(rm_load16(at0) | (uint32_t)rm_load16(at1) << 16));
	__m512i low = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
	f = _mm512_permutexvar_ps(low, _mm512_castps128_ps512(_mm_cvtph_ps(h)));
	return f;
}

INLINE void scales_iq4_xs(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m512i shift4 = both((const int32_t[8]){0, 4, 8, 12, 16, 20, 24, 28}), shift2 = _mm512_srli_epi32(shift4, 1);
	__m512i low = _mm512_and_si512(_mm512_srlv_epi32(two32(rm_load32(w0 + 4), rm_load32(w1 + 4)), shift4), _mm512_set1_epi32(15));
	__m512i high = _mm512_and_si512(_mm512_srlv_epi32(two32(rm_load16(w0 + 2), rm_load16(w1 + 2)), shift2), _mm512_set1_epi32(3));
	__m512i sc = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
	s->s = _mm512_mul_ps(super_scale16(w0, w1), _mm512_cvtepi32_ps(sc));
}

// ---- super-blocks -----------------------------------------------------------

// A byte of Q4_K holds a weight of one group in its low nibble and one of the
// next group in its high nibble; the high one is used in place, sixteen times
// too large.
INLINE void unpack_q4_k(const uint8_t *w, __m512i q[4]) {
	for (int j = 0; j < 4; j++) q[j] = _mm512_and_si512(both(w + 16 + 32 * j), halves8(0x0f, 0xf0));
}

// scales_q4_k decodes d, dmin and 12 bytes of scales and minima (rm_q4k_scale).
INLINE void scales_q4_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(w0)), load128(w1), 1);
	__m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(h, 0xed), _mm256_set_epi32(4, 0, 0, 0, 4, 0, 0, 0)); // dwords 1 3 2 3
	low = _mm256_and_si256(low, _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f));
	__m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(h, 0xa5), 2); // dwords 1 1 2 2
	low = _mm256_ternarylogic_epi32(_mm256_set1_epi64x(0x3030303000000000), high, low, 0xea);
	low = _mm256_permute4x64_epi64(low, 0xd8);
	__m512 d, dmin;
	super_scales(w0, w1, &d, &dmin);
	s->s = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(low))));
	s->m0 = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(low, 1))));
}

INLINE void unpack_q5_k(const uint8_t *w, __m512i q[4]) {
	__m512i h = both(w + 16);
	__m512i fifth[4] = {_mm512_sllv_epi16(h, halves16(4, 3)), _mm512_sllv_epi16(h, halves16(2, 1)),
	                    _mm512_srlv_epi16(h, halves16(0, 1)), _mm512_srlv_epi16(h, halves16(2, 3))};
	for (int j = 0; j < 4; j++) {
		__m512i v = _mm512_srlv_epi16(both(w + 48 + 32 * j), halves16(0, 4));
		q[j] = _mm512_and_si512(pick(_mm512_set1_epi8(15), v, fifth[j]), _mm512_set1_epi8(31));
	}
}

// A byte of Q2_K holds two bits of each of four groups: weights times 1, 4, 16
// and 64.
INLINE void unpack_q2_k(const uint8_t *w, __m512i q[4]) {
	for (int h = 0; h < 2; h++) {
		__m512i v = both(w + 16 + 32 * h);
		q[2 * h] = _mm512_and_si512(v, halves8(0x03, 0x0c));
		q[2 * h + 1] = _mm512_and_si512(v, halves8(0x30, 0xc0));
	}
}

INLINE __m128i sub_q2_k(const uint8_t *w) { return _mm_and_si128(load128(w), _mm_set1_epi8(15)); }

INLINE void scales_q2_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) {
	__m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(w0)), load128(w1), 1);
	v = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
	// the minima of the first halves of both rows, then of the last halves
	__m128i order = _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
	v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order)), 0xd8);
	__m512 dmin;
	super_scales(w0 + 80, w1 + 80, &s->s, &dmin);
	s->m0 = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(v))));
	s->m1 = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(v, 1))));
}

// Q3_K: as Q2_K, with bit g of a mask byte as the third bit of group g.
INLINE void unpack_q3_k(const uint8_t *w, __m512i q[4]) {
	__m512i h = both(w);
	__m512i third[4] = {_mm512_sllv_epi16(h, halves16(2, 3)), _mm512_sllv_epi16(h, halves16(0, 1)),
	                    _mm512_srlv_epi16(h, halves16(2, 1)), _mm512_srlv_epi16(h, halves16(4, 3))};
	for (int i = 0; i < 4; i++) {
		__m512i v = both(w + 32 + 32 * (i / 2));
		if (i % 2) v = _mm512_srli_epi16(v, 4);
		q[i] = _mm512_and_si512(pick(halves8(0x03, 0x0c), v, third[i]), halves8(0x07, 0x1c));
	}
}

// sub_q3_k gives rm_q3k_scale - 32 from 12 bytes.
INLINE __m128i sub_q3_k(const uint8_t *w) {
	__m128i low = _mm_set1_epi64x((long long)rm_load64(w + 96)), high = _mm_set1_epi32((int)rm_load32(w + 104));
	low = _mm_and_si128(_mm_srlv_epi64(low, _mm_set_epi64x(4, 0)), _mm_set1_epi8(15));
	high = _mm_and_si128(_mm_srlv_epi32(high, _mm_set_epi32(6, 4, 2, 0)), _mm_set1_epi8(3));
	return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
}

INLINE void scales_q3_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = super_scale16(w0 + 108, w1 + 108); }

INLINE void unpack_q6_k(const uint8_t *w, __m512i q[4]) {
	__m512i low = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);
	for (int h = 0; h < 2; h++) {
		__m512i a = load512(w + 64 * h), v = both(w + 128 + 32 * h);
		q[2 * h] = _mm512_and_si512(pick(low, a, _mm512_sllv_epi16(v, halves16(4, 2))), six);
		q[2 * h + 1] = _mm512_and_si512(pick(low, _mm512_srli_epi16(a, 4), _mm512_srlv_epi16(v, halves16(0, 2))), six);
	}
}

INLINE __m128i sub_q6_k(const uint8_t *w) { return load128(w + 192); }

INLINE void scales_q6_k(const uint8_t *w0, const uint8_t *w1, scale_pair *s) { s->s = super_scale16(w0 + 208, w1 + 208); }

// EACH_SINGLE_SCALE lists the types with one scale per 32 columns: name,
// number, row_kind.
#define EACH_SINGLE_SCALE(F) \
	F(q8_0, RM_Q8_0, (row_kind){unpack_q8_0, scales_q8_0, NULL, OFFSET, 272, 0, 0}) \
	F(q4_0, RM_Q4_0, (row_kind){unpack_q4_0, scales_q4_0, NULL, OFFSET, 144, 0, 0}) \
	F(iq4_nl, RM_IQ4_NL, (row_kind){unpack_iq4_nl, scales_q4_0, NULL, OFFSET, 144, 0, 0}) \
	F(mxfp4, RM_MXFP4, (row_kind){unpack_mxfp4, scales_mxfp4, NULL, OFFSET, 136, 0, 0}) \
	F(iq4_xs, RM_IQ4_XS, (row_kind){unpack_iq4_xs, scales_iq4_xs, NULL, OFFSET, 136, 0, 0}) \
	F(q4_k, RM_Q4_K, (row_kind){unpack_q4_k, scales_q4_k, NULL, MIN32 | SHIFT, 144, 0x40404040, 0}) \
	F(q5_k, RM_Q5_K, (row_kind){unpack_q5_k, scales_q4_k, NULL, MIN32, 176, 0, 0})
