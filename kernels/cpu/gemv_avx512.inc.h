// GEMV for one to four tokens on 512-bit vectors, included by gemv_avx512.c
// inside its target section.
//
// Four rows are processed at once, one from each quarter of the tile: a core
// reads four streams of memory 1.5 times as fast as one (performance.md,
// "Decode"). Weights are unpacked to unsigned bytes, with an offset if they are
// signed, and multiplied by the two bytes of the activations with vpdpbusd; the
// contribution of the offset is subtracted from the integer result by means of
// the sums that rm_act holds.
//
// A group of 32 is four pieces of eight bytes. Vectors hold pieces of different groups
// side by side, two vectors different pieces of the same groups in the same places, so
// that dot products accumulate in fewer vectors, and fewer instructions add up their
// lanes. Weights are put into that order while they are still packed. Activations are put
// into the same order once for a tile.
//
// On Zen 4 products and float arithmetic share two of four pipes, with rotations and all
// instructions on bytes that VBMI and GFNI have; permutations of two vectors by a third
// are as slow as two instructions. So the order is made by unpacks, within 128 bits.

#include "load_avx512.inc.h"
#include "sums_avx.inc.h"

// Corrections that a type's integers need after the dot products; combined with
// or.
enum {
	OFFSET = 1,   // bytes are the weight + 128 >> row_kind.offset
	OFFSET16 = 2, // bytes are the weight + a power of two (row_kind.offsets), with SUB
	SUB = 4,      // an integer scale for each 16 columns
	MIN32 = 8,    // a minimum for each 32 columns
	MIN16 = 16,   // for each 16
	SHIFT = 32,   // some groups' bytes are the weight times a power of two
	FAR = 64,     // weights are prefetched into the second-level cache only
	UPPER = 128,  // the lower bytes of the activations are zero
	WHOLE = 256,  // all groups are side by side: places_of
	CROSS = 512,  // pieces of two groups change places
};

// scale_pair holds the float scales of 256 columns of two rows: in each 128 bits two groups
// of the first row, the same two groups of the second. m0 and m1 are minima, to be
// subtracted.
typedef struct {
	__m512 s, m0, m1;
} scale_pair;

typedef void (*unpack512)(const uint8_t *w, __m512i q[4]);
typedef void (*unpack_pair512)(const uint8_t *w0, const uint8_t *w1, __m512i q[2][4]);
typedef void (*scales512)(const uint8_t *w0, const uint8_t *w1, scale_pair *s);
// sub512 gives the integer scales in the order of places_of: in each 128 bits two halves
// of groups of the first row, the same of the second.
typedef void (*sub512)(const uint8_t *w0, const uint8_t *w1, __m512i k[2]);

// row_kind describes the kernel of a type; it is a constant at every use.
typedef struct {
	unpack512 unpack;
	unpack_pair512 unpack_pair; // in place of unpack, for two rows together
	scales512 scales;
	sub512 sub;
	int flags, bytes; // of 256 columns
	int order;        // the group at place i of the sums, at 4*i: places_of
	int shifts;       // SHIFT: bits by which the group at place i is shifted, at 4*i
	int offsets;      // OFFSET16: the same for twice the sums of rm_act, -64 times too large
	int offset;       // OFFSET
} row_kind;

// with adds flags to a kind.
INLINE row_kind with(row_kind k, int flags) {
	k.flags |= flags;
	return k;
}

// The sums of two rows are brought together within 128 bits: lanes 4*i to 4*i+3 are those
// of the groups at places 2*i and 2*i+1, first of one row, then of the other.

// nibble_lanes puts nibble i of packed into both lanes of place i.
INLINE __m512i nibble_lanes(int packed) {
	__m512i shift = _mm512_set_epi32(28, 24, 28, 24, 20, 16, 20, 16, 12, 8, 12, 8, 4, 0, 4, 0);
	return _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32(packed), shift), _mm512_set1_epi32(15));
}

// in_places puts eight numbers of groups into their lanes, groups being nibble_lanes of
// the order.
INLINE __m512i in_places(const int32_t *p, __m512i groups) { return _mm512_permutexvar_epi32(groups, _mm512_castsi256_si512(load256(p))); }
INLINE __m512 in_places_ps(const float *p, __m512i groups) {
	return _mm512_permutexvar_ps(groups, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

// by_group is the opposite: the groups of the first row, then of the second.
INLINE __m512 by_group(__m512 v, int order) {
	int32_t at[16];
	for (int i = 0; i < 8; i++) {
		int g = order >> (4 * i) & 15;
		at[g] = 4 * (i / 2) + i % 2;
		at[8 + g] = at[g] + 2;
	}
	return _mm512_permutexvar_ps(load512(at), v);
}

// places_of lists which piece p of which group g, as 4*g + p, is at which eight bytes of
// the four vectors of a super-block. WHOLE: vector e has piece e of all groups in their
// order. Otherwise vector 0 has, in 128 bits each, pieces 0 of the groups at places 0 and
// 1, their pieces 2, and the same of places 2 and 3; vector 1 has pieces 1 and 3 of these
// groups; vectors 2 and 3 have the other four. With CROSS the group at place 1 and each
// second one has pieces 1 and 3 first. So the sums of the two halves of a group
// are in different 128 bits until fold adds them up.
INLINE void places_of(row_kind k, int64_t at[32]) {
	for (int e = 0; e < 4; e++) {
		for (int i = 0; i < 8; i++) {
			int half = i / 2 % 2, place = 4 * (e / 2) + 2 * (i / 4) + i % 2, piece = 2 * half + (k.flags & CROSS ? e + i : e) % 2;
			if (k.flags & WHOLE) place = i, piece = e;
			at[8 * e + i] = 4 * (k.order >> (4 * place) & 15) + piece;
		}
	}
}

// row_x is 256 columns of a row of activations, arranged for a kind: bytes by places_of,
// numbers of groups in the lanes of scale_pair.
typedef struct {
	int8_t upper[256], lower[256];
	float d[16], b0[16], b1[16]; // MIN32 has b in b0
	int32_t z[2][16];            // what offsets add to the sums of groups, or of their halves
} row_x;

// arrange_bytes puts 256 bytes into the order of places_of.
INLINE void arrange_bytes(const int8_t *x, const __m512i at[4], int8_t *to) {
	__m512i v[4];
	for (int i = 0; i < 4; i++) v[i] = load512(x + 64 * i);
	for (int e = 0; e < 4; e++) {
		__mmask8 high = _mm512_test_epi64_mask(at[e], _mm512_set1_epi64(16));
		__m512i a = _mm512_permutex2var_epi64(v[0], at[e], v[1]), b = _mm512_permutex2var_epi64(v[2], at[e], v[3]);
		_mm512_store_si512(to + 64 * e, _mm512_mask_mov_epi64(a, high, b));
	}
}

// arrange_offsets fills z for the groups g and on.
INLINE void arrange_offsets(row_kind k, const rm_act *a, int64_t g, __m512i groups, int32_t z[2][16]) {
	if (k.flags & OFFSET) _mm512_store_si512(z[0], _mm512_srav_epi32(in_places(a->z + g, groups), _mm512_set1_epi32(k.offset)));
	if (k.flags & OFFSET16) {
		__m512i shift = nibble_lanes(k.offsets);
		__m512i first = in_places(a->z0 + g, groups), last = in_places(a->z1 + g, groups);
		first = _mm512_srav_epi32(_mm512_add_epi32(first, first), shift);
		last = _mm512_srav_epi32(_mm512_add_epi32(last, last), shift);
		// as they are before fold
		_mm512_store_si512(z[0], _mm512_permutex2var_epi64(first, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), last));
		_mm512_store_si512(z[1], _mm512_permutex2var_epi64(first, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), last));
	}
}

// arrange fills x from a row of activations.
INLINE void arrange(row_kind k, const rm_act *a, row_x *x) {
	int64_t places[32];
	__m512i at[4], groups = nibble_lanes(k.order);
	places_of(k, places);
	for (int e = 0; e < 4; e++) at[e] = load512(places + 8 * e);
	for (int64_t g = 0; g < a->groups; g += 8, x++) {
		arrange_bytes(a->q + 32 * g, at, x->upper);
		if (!(k.flags & UPPER)) arrange_bytes(a->r + 32 * g, at, x->lower);
		_mm512_store_ps(x->d, in_places_ps(a->d + g, groups));
		if (k.flags & MIN32) _mm512_store_ps(x->b0, in_places_ps(a->b + g, groups));
		if (k.flags & MIN16) {
			_mm512_store_ps(x->b0, in_places_ps(a->b0 + g, groups));
			_mm512_store_ps(x->b1, in_places_ps(a->b1 + g, groups));
		}
		arrange_offsets(k, a, g, groups, x->z);
	}
}

// dots multiplies n vectors of two rows by arranged activations and brings the sums
// together.
INLINE __m512i dots(const __m512i *q0, const __m512i *q1, int n, const int8_t *x, int flags) {
	__m512i a = _mm512_setzero_si512(), b = a;
	RM_UNROLL_INLINED
	for (int e = 0; e < n; e++) {
		__m512i v = load512(x + 64 * e);
		a = _mm512_dpbusd_epi32(a, q0[e], v);
		b = _mm512_dpbusd_epi32(b, q1[e], v);
	}
	a = _mm512_slli_epi32(a, 7);
	b = _mm512_slli_epi32(b, 7);
	if (!(flags & UPPER)) {
		RM_UNROLL_INLINED
		for (int e = 0; e < n; e++) {
			__m512i v = load512(x + 256 + 64 * e);
			a = _mm512_dpbusd_epi32(a, q0[e], v);
			b = _mm512_dpbusd_epi32(b, q1[e], v);
		}
	}
	__m512 p = _mm512_castsi512_ps(a), r = _mm512_castsi512_ps(b);
	return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(p, r, 0x88)), _mm512_castps_si512(_mm512_shuffle_ps(p, r, 0xdd)));
}

// fold adds up the sums of the halves of groups.
INLINE __m512i fold(__m512i a, __m512i b) {
	return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
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

// group_dots are the dot products of the groups of two rows, integer scales included.
INLINE __m512i group_dots(row_kind k, const __m512i q[2][4], const __m512i sub[2], const row_x *x) {
	__m512i t;
	if (k.flags & WHOLE) {
		t = dots(q[0], q[1], 4, x->upper, k.flags);
	} else {
		__m512i a = dots(q[0], q[1], 2, x->upper, k.flags), b = dots(q[0] + 2, q[1] + 2, 2, x->upper + 128, k.flags);
		if (k.flags & OFFSET16) {
			a = _mm512_add_epi32(a, load512(x->z[0]));
			b = _mm512_add_epi32(b, load512(x->z[1]));
		}
		if (k.flags & SUB) {
			a = _mm512_mullo_epi32(a, sub[0]);
			b = _mm512_mullo_epi32(b, sub[1]);
		}
		t = fold(a, b);
	}
	if (k.flags & OFFSET) t = _mm512_add_epi32(t, load512(x->z[0]));
	return k.flags & SHIFT ? _mm512_srav_epi32(t, nibble_lanes(k.shifts)) : t;
}

// rows4 computes four rows of a tile, from row first on, `step` apart, times nt tokens, a
// constant. A row of x has that many blocks of 256 columns. It computes those before a
// block at which lanes are summed, from block begin on, and returns that block.
INLINE int64_t rows4(row_kind k, const rm_tile *t, int64_t first, int64_t step, const uint8_t *w[4], const quads *next, int64_t begin,
                     int64_t blocks, const row_x *x, int nt) {
	int64_t each = t->sums.supers ? t->sums.supers : blocks, end = begin + each < blocks ? begin + each : blocks;
	__m512 acc[2][4];
	for (int n = 0; n < nt; n++) acc[0][n] = acc[1][n] = _mm512_setzero_ps();
	x += begin;
	for (int64_t i = begin; i < end; i++, x++) {
		uintptr_t ahead = quads_ahead(next, i * k.bytes);
		RM_UNROLL
		for (int p = 0; p < 2; p++) {
			const uint8_t *w0 = w[2 * p], *w1 = w[2 * p + 1];
			rm_prefetch((uintptr_t)w0 + ahead, k.bytes, k.flags & FAR);
			rm_prefetch((uintptr_t)w1 + ahead, k.bytes, k.flags & FAR);
			__m512i q[2][4], sub[2];
			if (k.unpack_pair) {
				k.unpack_pair(w0, w1, q);
			} else {
				k.unpack(w0, q[0]);
				k.unpack(w1, q[1]);
			}
			if (k.flags & SUB) k.sub(w0, w1, sub);
			scale_pair s;
			k.scales(w0, w1, &s);
			for (int n = 0; n < nt; n++) {
				const row_x *a = x + n * blocks;
				__m512i dots = group_dots(k, q, sub, a);
				__m512 sum = acc[p][n];
				if (k.flags & (MIN32 | MIN16)) sum = _mm512_fnmadd_ps(s.m0, _mm512_load_ps(a->b0), sum);
				if (k.flags & MIN16) sum = _mm512_fnmadd_ps(s.m1, _mm512_load_ps(a->b1), sum);
				acc[p][n] = _mm512_fmadd_ps(_mm512_mul_ps(s.s, _mm512_load_ps(a->d)), _mm512_cvtepi32_ps(dots), sum);
			}
		}
		for (int r = 0; r < 4; r++) w[r] += k.bytes;
	}
	for (int n = 0; n < nt; n++) {
		for (int r = 0; r < 4; r++) {
			if (first + r * step >= t->nrows) break;
			__m512 v = by_group(acc[r / 2][n], k.order);
			give_lanes(t, first + r * step, n, begin / each, r % 2 ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v));
		}
	}
	return end;
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

// run_rows computes a tile of nt tokens, a constant. The scratch has room for 16
// unpacked rows of two bytes per column.
INLINE void run_rows(row_kind k, const rm_tile *t, int nt) {
	row_x *x = (row_x *)(void *)t->scratch;
	int64_t blocks = t->cols / 256;
	for (int n = 0; n < nt; n++) {
		rm_act a = rm_act_at(t->x[n], t->cols);
		arrange(k, &a, x + n * blocks);
	}
	quads next = quads_of(t, blocks * k.bytes);
	for (int64_t r = 0; r <= t->nrows / 4; r++, next.at += t->row_bytes) {
		const uint8_t *rows[4];
		int64_t first, step = four(t, r, rows, &first);
		if (step == 0) break;
		for (int64_t i = 0; i < blocks;) i = rows4(k, t, first, step, rows, &next, i, blocks, x, nt);
	}
}
