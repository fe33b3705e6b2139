// GEMV for one or two tokens on 256-bit vectors, included by gemv_avx2.c inside its target
// section.
//
// A group of 32 is four pieces of eight bytes. Vectors hold pieces of different groups side
// by side, and vectors with different pieces of the same groups accumulate, so that few
// instructions add up their lanes. Weights are put into that order while they are still
// packed, activations once for a tile.
//
// Without VNNI, products of bytes are added up in 16 bits (vpmaddubsw), where the sums of
// weights below 64 have room for four columns, and of smaller ones for more. Then one
// instruction multiplies by integer scales, or by 128 for the upper bytes of the
// activations, and widens. Bytes of eight bits are widened first and multiplied by the
// 15-bit activations (vpmaddwd).

#include "load_avx2.inc.h"
#include "sums_avx.inc.h"

// Corrections that a type's integers need, and how they are multiplied; combined with or.
enum {
	WORDS = 1,    // weights have eight bits: vpmaddwd
	OFFSET = 2,   // bytes are the weight + row_kind.offset
	OFFSET16 = 4, // the same with SUB; offset is shifted with the group
	SUB = 8,      // an integer scale for each 16 columns
	MIN32 = 16,   // a minimum for each 32 columns
	MIN16 = 32,   // for each 16
	SHIFT = 64,   // some groups' bytes are the weight times a power of two
	FAR = 128,    // weights are prefetched into the second-level cache only
	UPPER = 256,  // the lower bytes of the activations are zero
	WHOLE = 512,  // all pieces of a group accumulate: piece_at
};

// scales8 holds the float scales of 256 columns, by place. m0 and m1 are minima, to be
// subtracted.
typedef struct {
	__m256 s, m0, m1;
} scales8;

// row_kind describes the kernel of a type; it is a constant at every use.
typedef struct {
	void (*unpack)(const uint8_t *w, __m256i q[8]);
	void (*scales)(const uint8_t *w, scales8 *s);
	__m128i (*sub)(const uint8_t *w); // SUB: the scales of 16 columns each, signed bytes
	int flags, bytes;                 // of 256 columns
	unsigned order;                   // the group at place i of the sums, at 4*i
	unsigned shifts;                  // SHIFT: bits by which the group at place i is shifted, at 4*i
	int offset;
} row_kind;

// with adds flags to a kind.
INLINE row_kind with(row_kind k, int flags) {
	k.flags |= flags;
	return k;
}

INLINE int nibble(unsigned packed, int i) { return (int)(packed >> (4 * i) & 15); }

// nibbles8 has nibble i of packed in lane i.
INLINE __m256i nibbles8(unsigned packed) {
	return _mm256_set_epi32(nibble(packed, 7), nibble(packed, 6), nibble(packed, 5), nibble(packed, 4), nibble(packed, 3), nibble(packed, 2),
	                        nibble(packed, 1), nibble(packed, 0));
}

// sums_of is the number of vectors of sums of 256 columns: two with WHOLE, in which each
// half of a vector has two groups, else four, which have the first halves of two groups in
// their low and the last halves in their high half.
INLINE int sums_of(row_kind k) { return k.flags & WHOLE ? 2 : 4; }

// piece_at says which piece p of which group g, as 4*g + p, is at eight bytes i of vector v.
INLINE int piece_at(row_kind k, int v, int i) {
	if (k.flags & WHOLE) return 4 * nibble(k.order, i / 2 * 4 + v / 4 * 2 + i % 2) + v % 4;
	return 4 * nibble(k.order, v / 2 * 2 + i % 2) + i / 2 * 2 + v % 2;
}

// row_x is 256 columns of a row of activations, arranged for a kind: by piece_at, and
// numbers of groups by place.
typedef struct {
	union {
		struct {
			int8_t upper[8][32], lower[8][32];
		};
		int16_t words[8][2][16]; // WORDS: of the even, then of the odd bytes of a vector
	};
	float d[8], b0[8], b1[8];               // MIN32 has b in b0
	int32_t z[8];                           // what offsets add to the sums of groups
	int16_t upper_z[4][16], lower_z[4][16]; // OFFSET16: what they add to the sums of four columns
} row_x;

INLINE void arrange_bytes(row_kind k, const int8_t *x, int8_t to[8][32]) {
	RM_UNROLL
	for (int v = 0; v < 8; v++) {
		RM_UNROLL
		for (int i = 0; i < 4; i++) memcpy(to[v] + 8 * i, x + 8 * piece_at(k, v, i), 8);
	}
}

// arrange_offsets gives the products of the offsets.
INLINE void arrange_offsets(row_kind k, int8_t x[8][32], int16_t z[4][16]) {
	RM_UNROLL
	for (int i = 0; i < 4; i++) {
		__m256i offset = _mm256_set1_epi8((char)(k.offset << (k.flags & SHIFT ? nibble(k.shifts, 2 * i) : 0)));
		__m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(offset, load256(x[2 * i])), _mm256_maddubs_epi16(offset, load256(x[2 * i + 1])));
		_mm256_storeu_si256((__m256i *)(void *)z[i], _mm256_sub_epi16(_mm256_setzero_si256(), sum));
	}
}

// arrange_words joins the two bytes of arranged activations.
INLINE void arrange_words(int8_t upper[8][32], int8_t lower[8][32], int16_t to[8][2][16]) {
	for (int v = 0; v < 8; v++) {
		__m256i u = load256(upper[v]), l = load256(lower[v]);
		__m256i even = _mm256_srai_epi16(_mm256_slli_epi16(l, 8), 8), odd = _mm256_srai_epi16(l, 8);
		even = _mm256_add_epi16(even, _mm256_slli_epi16(_mm256_srai_epi16(_mm256_slli_epi16(u, 8), 8), 7));
		odd = _mm256_add_epi16(odd, _mm256_slli_epi16(_mm256_srai_epi16(u, 8), 7));
		_mm256_storeu_si256((__m256i *)(void *)to[v][0], even);
		_mm256_storeu_si256((__m256i *)(void *)to[v][1], odd);
	}
}

INLINE void arrange_floats(row_kind k, const float *from, float *to) {
	_mm256_storeu_ps(to, _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), nibbles8(k.order)));
}

// arrange fills x from a row of activations.
INLINE void arrange(row_kind k, const rm_act *a, row_x *x) {
	for (int64_t g = 0; g < a->groups; g += 8, x++) {
		if (k.flags & WORDS) {
			int8_t upper[8][32], lower[8][32];
			arrange_bytes(k, a->q + 32 * g, upper);
			arrange_bytes(k, a->r + 32 * g, lower);
			arrange_words(upper, lower, x->words);
		} else {
			arrange_bytes(k, a->q + 32 * g, x->upper);
			arrange_bytes(k, a->r + 32 * g, x->lower);
		}
		arrange_floats(k, a->d + g, x->d);
		if (k.flags & MIN32) arrange_floats(k, a->b + g, x->b0);
		if (k.flags & MIN16) {
			arrange_floats(k, a->b0 + g, x->b0);
			arrange_floats(k, a->b1 + g, x->b1);
		}
		if (k.flags & OFFSET16) {
			arrange_offsets(k, x->upper, x->upper_z);
			arrange_offsets(k, x->lower, x->lower_z);
		} else if (k.flags & OFFSET) {
			__m256i sum = _mm256_srai_epi32(_mm256_permutevar8x32_epi32(load256(a->z + g), nibbles8(k.order)), 7); // as z is -128 times it
			_mm256_storeu_si256((__m256i *)(void *)x->z, _mm256_mullo_epi32(sum, _mm256_set1_epi32(k.offset)));
		}
	}
}

// spread gives the scales of 16 columns in the words of the sums: k[i] belongs to sum i,
// upper[i] is 128 times as large.
INLINE void spread(row_kind kind, __m128i scales, __m256i upper[4], __m256i k[4]) {
	__m256i all = _mm256_broadcastsi128_si256(scales);
	RM_UNROLL
	for (int i = 0; i < 4; i++) {
		int a = nibble(kind.order, 2 * i) << 9, b = nibble(kind.order, 2 * i + 1) << 9; // in the high byte of a word; the low one becomes 0
		int64_t word = 0x0001000100010001;
		int64_t first = (a + 128) * word, second = (b + 128) * word, last = 256 * word;
		__m256i v = _mm256_shuffle_epi8(all, _mm256_set_epi64x(second + last, first + last, second, first));
		upper[i] = _mm256_srai_epi16(v, 1);
		k[i] = _mm256_srai_epi16(v, 8);
	}
}

// sum_bytes adds up the products of n vectors of bytes in 16 bits.
INLINE __m256i sum_bytes(const __m256i *q, int n, const int8_t (*x)[32]) {
	__m256i sum = _mm256_maddubs_epi16(q[0], load256(x[0]));
	RM_UNROLL_INLINED
	for (int i = 1; i < n; i++) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(q[i], load256(x[i])));
	return sum;
}

// sum_words adds up the products of n vectors of bytes in 32 bits.
INLINE __m256i sum_words(const __m256i *q, int n, const int16_t (*x)[2][16]) {
	__m256i even = _mm256_setzero_si256(), odd = even;
	RM_UNROLL_INLINED
	for (int i = 0; i < n; i++) {
		even = _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_and_si256(q[i], _mm256_set1_epi16(255)), load256(x[i][0])));
		odd = _mm256_add_epi32(odd, _mm256_madd_epi16(_mm256_srli_epi16(q[i], 8), load256(x[i][1])));
	}
	return _mm256_add_epi32(even, odd);
}

// sum_of gives sum i of 256 columns.
INLINE __m256i sum_of(row_kind k, const __m256i q[8], const __m256i upper_k[4], const __m256i sub[4], const row_x *x, int i) {
	int n = 8 / sums_of(k);
	if (k.flags & WORDS) return sum_words(q + n * i, n, x->words + n * i);
	__m256i u = sum_bytes(q + n * i, n, x->upper + n * i);
	if (k.flags & OFFSET16) u = _mm256_add_epi16(u, load256(x->upper_z[i]));
	u = _mm256_madd_epi16(u, k.flags & SUB ? upper_k[i] : _mm256_set1_epi16(128));
	if (k.flags & UPPER) return u;
	__m256i l = sum_bytes(q + n * i, n, x->lower + n * i);
	if (k.flags & OFFSET16) l = _mm256_add_epi16(l, load256(x->lower_z[i]));
	return _mm256_add_epi32(u, _mm256_madd_epi16(l, k.flags & SUB ? sub[i] : _mm256_set1_epi16(1)));
}

// join adds up neighbours in a and b, within 128 bits.
INLINE __m256i join(__m256i a, __m256i b) {
	__m256 p = _mm256_castsi256_ps(a), r = _mm256_castsi256_ps(b);
	return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(p, r, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(p, r, 0xdd)));
}

// group_dots are the dot products of the groups of a row by place, integer scales included.
INLINE __m256i group_dots(row_kind k, const __m256i q[8], const __m256i upper_k[4], const __m256i sub[4], const row_x *x) {
	__m256i t = join(sum_of(k, q, upper_k, sub, x, 0), sum_of(k, q, upper_k, sub, x, 1));
	if (!(k.flags & WHOLE)) {
		__m256i last = join(sum_of(k, q, upper_k, sub, x, 2), sum_of(k, q, upper_k, sub, x, 3));
		t = _mm256_add_epi32(_mm256_permute2x128_si256(t, last, 0x20), _mm256_permute2x128_si256(t, last, 0x31));
	}
	if (k.flags & OFFSET) t = _mm256_add_epi32(t, load256(x->z));
	return k.flags & SHIFT ? _mm256_srav_epi32(t, nibbles8(k.shifts)) : t;
}

// PREFETCH is the prefetch distance in bytes of weights that are read.
#define PREFETCH 8192

// row1 computes a row of a tile times nt tokens, a constant. A row of x has that many blocks
// of 256 columns. It computes those before a block at which lanes are summed, from block
// begin on, and returns that block.
INLINE int64_t row1(row_kind k, const rm_tile *t, int64_t row, const rm_ahead *next, int64_t begin, int64_t blocks, const row_x *x, int nt) {
	int64_t each = t->sums.supers ? t->sums.supers : blocks, end = begin + each < blocks ? begin + each : blocks;
	const uint8_t *w = t->w + row * t->row_bytes + begin * k.bytes;
	__m256 acc[2];
	for (int n = 0; n < nt; n++) acc[n] = _mm256_setzero_ps();
	x += begin;
	for (int64_t i = begin; i < end; i++, x++, w += k.bytes) {
		rm_prefetch((uintptr_t)w + rm_ahead_from(next, i * k.bytes), k.bytes, k.flags & FAR);
		__m256i q[8], upper_k[4], sub[4];
		k.unpack(w, q);
		if (k.flags & SUB) spread(k, k.sub(w), upper_k, sub);
		scales8 s;
		k.scales(w, &s);
		for (int n = 0; n < nt; n++) {
			const row_x *a = x + n * blocks;
			__m256 sum = acc[n];
			if (k.flags & (MIN32 | MIN16)) sum = _mm256_fnmadd_ps(s.m0, _mm256_loadu_ps(a->b0), sum);
			if (k.flags & MIN16) sum = _mm256_fnmadd_ps(s.m1, _mm256_loadu_ps(a->b1), sum);
			__m256 dots = _mm256_cvtepi32_ps(group_dots(k, q, upper_k, sub, a));
			acc[n] = _mm256_fmadd_ps(_mm256_mul_ps(s.s, _mm256_loadu_ps(a->d)), dots, sum);
		}
	}
	int32_t at[8];
	for (int i = 0; i < 8; i++) at[nibble(k.order, i)] = i;
	for (int n = 0; n < nt; n++) give_lanes(t, row, n, begin / each, _mm256_permutevar8x32_ps(acc[n], load256(at)));
	return end;
}

// run_rows computes a tile of nt tokens, a constant. The scratch has room for 16 unpacked
// rows of two bytes per column.
INLINE void run_rows(row_kind k, const rm_tile *t, int nt) {
	row_x *x = (row_x *)(void *)t->scratch;
	int64_t blocks = t->cols / 256;
	for (int n = 0; n < nt; n++) {
		rm_act a = rm_act_at(t->x[n], t->cols);
		arrange(k, &a, x + n * blocks);
	}
	rm_ahead next = rm_ahead_of(blocks * k.bytes, t->row_bytes, PREFETCH);
	for (int64_t r = 0; r < t->nrows; r++) {
		for (int64_t i = 0; i < blocks;) i = row1(k, t, r, &next, i, blocks, x, nt);
	}
}
