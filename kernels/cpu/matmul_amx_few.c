// GEMM for two to eight tokens on AMX.
//
// Weights are read once, sequentially, 16 rows at a time, so that memory
// bandwidth is the limit. They are unpacked (matmul_amx_unpack.inc.h) into a buffer
// of two super-blocks (256 columns) that stays in the first-level cache. A tile
// operand is 16 rows by two groups of 32. To keep the dot products of the two
// groups apart, the activations hold each token's columns twice
// (matmul_amx_few.h): once with the second group zero, once with the first. So one tile product gives the exact dot products of 16 rows, two
// groups and eight tokens (for four tokens with both bytes), and one vector
// operation serves two groups.
//
// Step u scales pair of groups u, stores the dot products of pair u+2, starts
// those of u+4 and unpacks four rows of the super-block after that, so that the
// tile, vector and memory units work at the same time. What a tile stores
// cannot be loaded before it has reached the cache, and a dot product takes as
// long as a step, hence these distances. Each pair has its own place in the
// sums (lanes 2k and 2k+1 of the eight, k = u mod 4), so the sums are in
// memory: 4 KiB, in the same cache.
#include "matmul_amx_few.h"
#include "matmul.h"
#include "amx_tiles.h"
#include "tables.h"

#if RM_X86
RM_BEGIN_AVX512

#include "matmul_amx_unpack.inc.h"
#include "transpose_avx512.inc.h"

#define ROWS 16
#define AHEAD 2 // prefetch distance in super-blocks

// few is the working memory of one call.
typedef struct {
	_Alignas(64) float acc[4][ROWS][16];       // [k][row][token, group of the pair]
	_Alignas(64) int32_t sums[4][2][ROWS][16]; // of pair k; [1] is used beyond four tokens
	_Alignas(64) int8_t w[2][4][ROWS][64];     // of a super-block, pair by pair
	_Alignas(64) float s[4][ROWS][8];          // scales of a super-block
	_Alignas(64) float m[4][ROWS][8];          // minima
} few;

// block is 16 rows of a matrix and the tokens they are multiplied by.
typedef struct {
	const uint8_t *w;
	int64_t row_bytes, supers;
	int64_t next; // bytes from here to the next 16 rows
	const uint8_t *x;
	int64_t record;
} block;

// unpack_rows unpacks rows 4*i to 4*i+3 of super-block j.
INLINE void unpack_rows(row_kind k, few *f, const block *b, int64_t j, int i) {
	if (j >= b->supers) return;
	// Beyond the end of these rows the next ones begin. A prefetch never
	// faults.
	int64_t ahead = j + AHEAD < b->supers ? AHEAD * k.bytes : b->next + (AHEAD - b->supers) * k.bytes;
	for (int p = 0; p < 2; p++) {
		const uint8_t *at = b->w + (4 * i + 2 * p) * b->row_bytes + j * k.bytes;
		scale_pair s;
		k.scales(at, at + b->row_bytes, &s);
		_mm512_store_ps(f->s[j & 3][4 * i + 2 * p], s.s);
		if (k.flags & MIN32) _mm512_store_ps(f->m[j & 3][4 * i + 2 * p], s.m0);
		for (int r = 0; r < 2; r++, at += b->row_bytes) {
			RM_UNROLL
			for (int n = 0; n < k.bytes; n += 64) _mm_prefetch((const char *)((uintptr_t)at + (uintptr_t)(ahead + n)), _MM_HINT_T0);
			__m512i q[4];
			k.unpack(at, q);
			for (int n = 0; n < 4; n++) {
				if (k.flags & OFFSET) q[n] = _mm512_xor_si512(q[n], _mm512_set1_epi8((char)0x80));
				if (k.flags & SHIFT) q[n] = _mm512_srlv_epi16(q[n], halves16(0, 4)); // odd groups are 16 times too large
				_mm512_store_si512(f->w[j & 1][n][4 * i + 2 * p + r], q[n]);
			}
		}
	}
}

// Tiles 0 and 1 are the dot products of even pairs with upper and lower bytes,
// 2 and 3 those of odd ones; for up to four tokens 0 and 2 are enough.
INLINE void dot_upper(const few *f, const block *b, int64_t j, int k, const uint8_t *x) {
	if (j >= b->supers) return;
	const void *w = f->w[j & 1][k];
	if (k & 1) {
		TILE_ZERO(2);
		TILE_LOAD(5, w, 64);
		TILE_LOAD(6, x, 64);
		TILE_DOT(2, 5, 6);
	} else {
		TILE_ZERO(0);
		TILE_LOAD(4, w, 64);
		TILE_LOAD(6, x, 64);
		TILE_DOT(0, 4, 6);
	}
}

INLINE void dot_lower(const block *b, int64_t j, int k, const uint8_t *x) {
	if (j >= b->supers) return;
	TILE_LOAD(7, x + 1024, 64);
	if (k & 1) {
		TILE_ZERO(3);
		TILE_DOT(3, 5, 7);
	} else {
		TILE_ZERO(1);
		TILE_DOT(1, 4, 7);
	}
}

INLINE void store_upper(few *f, int k) {
	if (k & 1) {
		TILE_STORE(2, f->sums[k][0]);
	} else {
		TILE_STORE(0, f->sums[k][0]);
	}
}

INLINE void store_lower(few *f, int k) {
	if (k & 1) {
		TILE_STORE(3, f->sums[k][1]);
	} else {
		TILE_STORE(1, f->sums[k][1]);
	}
}

// two_groups broadcasts the values of the two groups of a pair.
INLINE __m512 two_groups(const float *p) {
	long long v;
	memcpy(&v, p, sizeof v);
	return _mm512_castsi512_ps(_mm512_set1_epi64(v));
}

// scale scales four rows of a pair's dot products and adds them to their sums;
// x is d and b of the pair.
INLINE void scale(row_kind kind, int wide, few *f, int64_t j, int k, int first, const float *x) {
	RM_UNROLL
	for (int r = first; r < first + 4; r++) {
		const int32_t *t = f->sums[k][0][r];
		const float *sp = &f->s[j & 3][r][2 * k], *mp = &f->m[j & 3][r][2 * k];
		float *acc = f->acc[k][r];
		if (wide) {
			__m512i n = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(t), 7), _mm512_load_si512(f->sums[k][1][r]));
			__m512 v = _mm512_load_ps(acc);
			if (kind.flags & MIN32) v = _mm512_fnmadd_ps(two_groups(mp), _mm512_load_ps(x + 16), v);
			__m512 s = _mm512_mul_ps(two_groups(sp), _mm512_load_ps(x));
			_mm512_store_ps(acc, _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(n), v));
		} else {
			__m256i n = _mm256_load_si256((const __m256i *)(const void *)t);
			n = _mm256_add_epi32(_mm256_slli_epi32(n, 7), _mm256_load_si256((const __m256i *)(const void *)(t + 8)));
			__m256 v = _mm256_load_ps(acc);
			if (kind.flags & MIN32) v = _mm256_fnmadd_ps(_mm512_castps512_ps256(two_groups(mp)), _mm256_load_ps(x + 8), v);
			__m256 s = _mm256_mul_ps(_mm512_castps512_ps256(two_groups(sp)), _mm256_load_ps(x));
			_mm256_store_ps(acc, _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(n), v));
		}
	}
}

// step is the step described at the top of this file, for pair k of super-block
// j; k and wide are constants.
INLINE void step(row_kind kind, int wide, few *f, const block *b, int64_t j, int k) {
	const uint8_t *here = b->x + b->record * (4 * j + k), *x = here + 4 * b->record;
	const float *d = (const float *)(const void *)(here + (wide ? RM_FEW_WIDE_D : RM_FEW_D));
	int stored = (k + 2) & 3; // the last two are stored a second time and not used
	scale(kind, wide, f, j, k, 0, d);
	store_upper(f, stored);
	dot_upper(f, b, j + 1, k, x);
	scale(kind, wide, f, j, k, 4, d);
	if (wide) store_lower(f, stored);
	if (wide) dot_lower(b, j + 1, k, x);
	scale(kind, wide, f, j, k, 8, d);
	unpack_rows(kind, f, b, j + 2, k);
	scale(kind, wide, f, j, k, 12, d);
}

// give_block sums the lanes and stores the last n of the 16 rows.
INLINE void give_block(const few *f, const rm_tile *t, int64_t off, int64_t n) {
	__m512i v[ROWS], c[16];
	for (int r = 0; r < ROWS; r++) {
		__m512 a[4];
		for (int k = 0; k < 4; k++) a[k] = _mm512_load_ps(f->acc[k][r]);
		v[r] = _mm512_castps_si512(_mm512_add_ps(_mm512_add_ps(a[0], a[2]), _mm512_add_ps(a[1], a[3])));
	}
	transpose16v(v, c);
	__mmask16 last = (__mmask16)(0xffffu << (ROWS - n));
	for (int64_t i = 0; i < t->nx; i++) {
		__m512 sum = _mm512_add_ps(_mm512_castsi512_ps(c[2 * i]), _mm512_castsi512_ps(c[2 * i + 1]));
		_mm512_mask_storeu_ps(t->out[i] + t->off + off - (ROWS - n), last, sum);
	}
}

INLINE void run_few(row_kind kind, int wide, const rm_tile *t) {
	few f;
	tiles_on(2);
	for (int64_t r = 0; r < t->nrows; r += ROWS) {
		// Where fewer than 16 rows are left, some rows before them are computed
		// a second time.
		int64_t n = t->nrows - r < ROWS ? t->nrows - r : ROWS;
		block b = {t->w + (r + n - ROWS) * t->row_bytes, t->row_bytes, t->cols / 256, ROWS * t->row_bytes, t->batches,
		           wide ? RM_FEW_WIDE : RM_FEW};
		memset(f.acc, 0, sizeof f.acc);
		for (int i = 0; i < 8; i++) unpack_rows(kind, &f, &b, i / 4, i % 4);
		RM_UNROLL
		for (int k = 0; k < 4; k++) {
			if (k >= 2) store_upper(&f, k - 2);
			if (k >= 2 && wide) store_lower(&f, k - 2);
			dot_upper(&f, &b, 0, k, b.x + b.record * k);
			if (wide) dot_lower(&b, 0, k, b.x + b.record * k);
		}
		for (int64_t j = 0; j < b.supers; j++) {
			step(kind, wide, &f, &b, j, 0);
			step(kind, wide, &f, &b, j, 1);
			step(kind, wide, &f, &b, j, 2);
			step(kind, wide, &f, &b, j, 3);
		}
		give_block(&f, t, r, n);
	}
	tiles_off();
}

#define DEFINE_FEW(name, type, ...) \
	static void few_##name(const rm_tile *t) { \
		if (t->nx <= 4) { \
			run_few(__VA_ARGS__, 0, t); \
		} else { \
			run_few(__VA_ARGS__, 1, t); \
		} \
	}
EACH_SINGLE_SCALE(DEFINE_FEW)

// spread writes the 64 bytes of one token and plane to their two columns.
INLINE void spread(__m512i v[16], int place, const int8_t *bytes) {
	v[place] = _mm512_maskz_loadu_epi32(0x00ff, bytes);
	v[place + 1] = _mm512_maskz_loadu_epi32(0xff00, bytes);
}

INLINE void give_columns(const __m512i v[16], uint8_t *dst) {
	__m512i c[16];
	transpose16v(v, c);
	for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + 64 * i, c[i]);
}

void rm_amx_gather_few(const void *const *x, int64_t n, int64_t cols, uint8_t *batch) {
	rm_act a[8];
	int64_t pairs = rm_act_padded(cols) / 64;
	int wide = n > 4;
	for (int64_t i = 0; i < n; i++) a[i] = rm_act_at(x[i], cols);
	for (int64_t p = 0; p < pairs; p++, batch += wide ? RM_FEW_WIDE : RM_FEW) {
		__m512i u[16], l[16];
		float d[16] = {0}, b[16] = {0};
		for (int i = 0; i < 16; i++) u[i] = l[i] = _mm512_setzero_si512();
		for (int i = 0; i < n; i++) {
			spread(u, 2 * i, a[i].q + 64 * p);
			spread(wide ? l : u, wide ? 2 * i : 8 + 2 * i, a[i].r + 64 * p);
			memcpy(d + 2 * i, a[i].d + 2 * p, 8);
			memcpy(b + 2 * i, a[i].b + 2 * p, 8);
		}
		give_columns(u, batch);
		if (wide) give_columns(l, batch + 1024);
		size_t bytes = wide ? 64 : 32;
		memcpy(batch + (wide ? RM_FEW_WIDE_D : RM_FEW_D), d, bytes);
		memcpy(batch + (wide ? RM_FEW_WIDE_D : RM_FEW_D) + bytes, b, bytes);
	}
}

RM_END_TARGET

rm_tile_fn rm_amx_few(int32_t type) {
	switch (type) {
#define CASE(name, type, ...) \
	case type: return few_##name;
		EACH_SINGLE_SCALE(CASE)
	}
	return NULL;
}
#endif
