// GEMM microkernels on panels of PANEL_ROWS rows, included by matmul_avx2.c and
// matmul_avx512.c inside their target section, after matmul_vec256.inc.h. The
// including file defines the vectors: pint and pfloat of PANEL_ROWS numbers,
// p_dot (accumulates dot products of pairs of int16) and the other p_ functions
// used below, and packing, 256 columns of PANEL_ROWS rows on their way into a
// panel: p_keep stores a row there, and p_group writes a group of 32 columns of
// all rows to a panel. With PANELS_OF_BYTES the level has panels of bytes too
// (matmul_panel_bytes.inc.h).
//
// PANEL_ROWS weight rows are unpacked once into a panel where vector lane =
// row, as int16 with their integer sub-block scales multiplied in (at most
// 2^12). Activations are 15-bit integers, so one instruction multiplies a pair
// of columns of all rows by a broadcast pair of activations, and neither
// offsets nor a sum over the two bytes of an activation are needed. Bytes would
// halve the panel, but need as many products: two planes of four columns. Where
// the lower bytes of the activations are zero, they need half as many.
//
// Groups are stored by lane (group number mod 8), so that a lane's float sums
// stay in registers over all columns.

// panel is PANEL_ROWS rows; group 8*j+lane is number lane*supers + j. Rows
// beyond the matrix are zero.
typedef struct {
	int64_t supers;
	int16_t *w; // [groups][16][PANEL_ROWS][2]: pairs of columns by row
	float *s;   // [groups][PANEL_ROWS]
	float *m0;  // [groups][PANEL_ROWS], types with minima
	float *m1;  // [groups][PANEL_ROWS], MIN_16
	// In a panel of bytes in place of w:
	uint8_t *q; // [groups][8][PANEL_ROWS][4]: four columns by row
	int32_t *k; // [groups][2][PANEL_ROWS]: integer scales, KIND_UK and KIND_SK
} panel;

// PANEL_GROUP is the number of bytes of one group, at most RM_PANEL_GROUP.
#define PANEL_GROUP (PANEL_ROWS * (64 + 3 * 4))

static panel panel_at(uint8_t *mem, int64_t groups) {
	panel p = {.supers = groups / 8, .w = (int16_t *)(void *)mem, .s = (float *)(void *)(mem + PANEL_ROWS * 64 * groups)};
	p.m0 = p.s + PANEL_ROWS * groups;
	p.m1 = p.m0 + PANEL_ROWS * groups;
	return p;
}

// prefetch_next prefetches n bytes at a distance of `ahead`: the next rows,
// which are read once these have been multiplied by the tokens. They may lie
// beyond the weights.
INLINE void prefetch_next(const uint8_t *w, int n, int64_t ahead) {
	uintptr_t next = (uintptr_t)w + (uintptr_t)ahead;
	for (int i = 0; i < n; i += 64) _mm_prefetch((const char *)(next + (uintptr_t)i), _MM_HINT_T1);
}

// ---- tokens ----------------------------------------------------------------

// A batch is RM_BATCH tokens one after the other, groups in the order of a
// panel: n int16 [groups][32], then d, b, b0, b1 [groups].
typedef struct {
	const int16_t *n;
	const float *d, *b, *b0, *b1;
	// In a batch of bytes in place of n:
	const int8_t *q;
	const int32_t *z; // [3][groups]: -128 times the sums of q, of a group, of its first half and its second
} token;

static token token_at(const uint8_t *batch, int64_t i, int64_t groups) {
	token t = {.n = (const int16_t *)(const void *)(batch + 80 * groups * i)};
	t.d = (const float *)(const void *)(t.n + 32 * groups);
	t.b = t.d + groups;
	t.b0 = t.b + groups;
	t.b1 = t.b0 + groups;
	return t;
}

static void gather_tokens(const void *const *x, int64_t n, int64_t cols, uint8_t *batch) {
	int64_t groups = rm_act_padded(cols) / 32, supers = groups / 8;
	for (int64_t t = 0; t < n; t++) {
		rm_act a = rm_act_at(x[t], cols);
		int16_t *dst = (int16_t *)(void *)(batch + 80 * groups * t);
		float *f = (float *)(void *)(dst + 32 * groups);
		for (int64_t g = 0; g < groups; g++) {
			int64_t i = g % 8 * supers + g / 8;
			for (int h = 0; h < 2; h++) {
				__m256i q = _mm256_cvtepi8_epi16(load128(a.q + 32 * g + 16 * h));
				__m256i r = _mm256_cvtepi8_epi16(load128(a.r + 32 * g + 16 * h));
				q = _mm256_add_epi16(_mm256_slli_epi16(q, 7), r);
				_mm256_storeu_si256((__m256i *)(void *)(dst + 32 * i + 16 * h), q);
			}
			f[i] = a.d[g];
			f[groups + i] = a.b[g];
			f[2 * groups + i] = a.b0[g];
			f[3 * groups + i] = a.b1[g];
		}
	}
}

// ---- what panels hold --------------------------------------------------------

// WORDS or BYTES; products of bytes differ by the kind.
enum { WORDS = 4,
	   BYTES };

// word_dots are the integer dot products of group i of np <= 2 panels and nt <= 4 tokens.
INLINE void word_dots(const panel *p, int np, int nt, const token *x, int64_t i, pint t[2][4]) {
	RM_UNROLL
	for (int k = 0; k < np * nt; k++) t[k / nt][k % nt] = p_zero_int();
	RM_UNROLL
	for (int c = 0; c < 16; c++) {
		pint w0 = p_load_int(p[0].w + 2 * PANEL_ROWS * (16 * i + c)), w1 = w0;
		if (np == 2) w1 = p_load_int(p[1].w + 2 * PANEL_ROWS * (16 * i + c));
		RM_UNROLL
		for (int k = 0; k < nt; k++) {
			pint v = p_pair(x[k].n + 32 * i + 2 * c);
			t[0][k] = p_dot(t[0][k], w0, v);
			if (np == 2) t[1][k] = p_dot(t[1][k], w1, v);
		}
	}
}

#if PANELS_OF_BYTES
#include "matmul_panel_bytes.inc.h"
#else
typedef packing byte_packing;
#define keep_bytes(p, r, u, kind) ((void)0)
#define group_of_bytes(p, g, kind, to, i) ((void)0)
#define byte_dots(p, np, nt, kind, x, i, t) ((void)0)
#endif

// ---- rows into panels ------------------------------------------------------

// pack fills a panel of words or bytes from nrows <= PANEL_ROWS rows.
INLINE void pack(unpack_fn unpack, int holds, int kind, int min, int bytes, const uint8_t *w, int64_t row_bytes,
                 int64_t nrows, int64_t cols, const panel *p) {
	union {
		packing words;
		byte_packing bytes;
	} q;
	_Alignas(64) float f[3][PANEL_ROWS][8];
	if (nrows < PANEL_ROWS) {
		memset(&q, 0, sizeof q);
		memset(f, 0, sizeof f);
	}
	for (int64_t j = 0; j < p->supers; j++, w += bytes) {
		int64_t left = (cols - 256 * j) / 32;
		for (int64_t r = 0; r < nrows; r++) {
			super u;
			const uint8_t *block = w + r * row_bytes;
			prefetch_next(block, bytes, PANEL_ROWS * row_bytes);
			if (left >= 8) {
				unpack(block, 8, &u);
			} else {
				unpack(block, (int)left, &u);
			}
			if (holds == WORDS) {
				p_keep(&q.words, r, &u, kind);
			} else {
				keep_bytes(&q.bytes, r, &u, kind);
			}
			_mm256_store_ps(f[0][r], u.s);
			if (min != MIN_NONE) _mm256_store_ps(f[1][r], u.m0);
			if (min == MIN_16) _mm256_store_ps(f[2][r], u.m1);
		}
		for (int g = 0; g < 8; g++) {
			int64_t i = g * p->supers + j;
			if (holds == WORDS) {
				p_group(&q.words, g, kind, p->w + 32 * PANEL_ROWS * i);
			} else {
				group_of_bytes(&q.bytes, g, kind, p, i);
			}
		}
		p_float_columns(f[0], p->s + PANEL_ROWS * j, PANEL_ROWS * p->supers);
		if (min != MIN_NONE) p_float_columns(f[1], p->m0 + PANEL_ROWS * j, PANEL_ROWS * p->supers);
		if (min == MIN_16) p_float_columns(f[2], p->m1 + PANEL_ROWS * j, PANEL_ROWS * p->supers);
	}
}

// ---- products --------------------------------------------------------------

// give_sums is rm_give_sums of the rows of a panel, once for all columns.
INLINE void give_sums(const pfloat a[8], const rm_row_sums *s, float *out, int64_t rows) {
	if (!s->each) {
		pfloat even = p_add(p_add(a[0], a[4]), p_add(a[2], a[6])), odd = p_add(p_add(a[1], a[5]), p_add(a[3], a[7]));
		p_store(out, rows, p_add(even, odd));
		return;
	}
	for (int64_t i = 0; i < s->count; i++, a += s->each, out += s->apart) {
		p_store(out, rows, s->each == 1 ? a[0] : s->each == 2 ? p_add(a[0], a[1]) : p_add(p_add(a[0], a[2]), p_add(a[1], a[3])));
	}
}

// lane_dots is one lane of the float sums of np <= 2 panels times nt <= 4 tokens:
// over the `supers` groups from number i on.
INLINE void lane_dots(const panel *p, int np, int nt, int holds, int min, const token *x, int64_t i, pfloat *const *sums) {
	pfloat acc[2][4];
	RM_UNROLL
	for (int k = 0; k < np * nt; k++) acc[k / nt][k % nt] = p_zero();
	for (int64_t end = i + p->supers; i < end; i++) {
		pint t[2][4];
		if (holds == WORDS) {
			word_dots(p, np, nt, x, i, t);
		} else {
			byte_dots(p, np, nt, holds, x, i, t);
		}
		RM_UNROLL
		for (int a = 0; a < np; a++) {
			pfloat s = p_load(p[a].s + PANEL_ROWS * i);
			RM_UNROLL
			for (int k = 0; k < nt; k++) {
				pfloat v = acc[a][k];
				if (min == MIN_32) v = p_fma(p_load(p[a].m0 + PANEL_ROWS * i), p_set(x[k].b[i]), v);
				if (min == MIN_16) {
					v = p_fma(p_load(p[a].m0 + PANEL_ROWS * i), p_set(x[k].b0[i]), v);
					v = p_fma(p_load(p[a].m1 + PANEL_ROWS * i), p_set(x[k].b1[i]), v);
				}
				acc[a][k] = p_fma(p_mul(s, p_set(x[k].d[i])), p_float(t[a][k]), v);
			}
		}
	}
	RM_UNROLL
	for (int k = 0; k < np * nt; k++) sums[k / nt][8 * (k % nt)] = acc[k / nt][k % nt];
}

// dots_fn is lane_dots for what panels hold, one kind of minima and numbers of panels and tokens.
typedef void (*dots_fn)(const panel *p, const token *x, int64_t i, pfloat *const *sums);

#define DEFINE_DOTS(holds, min, np, nt) \
	static void dots_##holds##_##min##_##np##_##nt(const panel *p, const token *x, int64_t i, pfloat *const *sums) { \
		lane_dots(p, np, nt, holds, min, x, i, sums); \
	}
#define DEFINE_DOTS_BY(holds, min, np) DEFINE_DOTS(holds, min, np, 1) DEFINE_DOTS(holds, min, np, 2) DEFINE_DOTS(holds, min, np, 4)
#define DEFINE_DOTS_OF(holds, min) DEFINE_DOTS_BY(holds, min, 1) DEFINE_DOTS_BY(holds, min, 2)
#define DOTS(holds, min, np) {dots_##holds##_##min##_##np##_1, dots_##holds##_##min##_##np##_2, dots_##holds##_##min##_##np##_4}
#define DOTS_OF(holds, min) {DOTS(holds, min, 1), DOTS(holds, min, 2)}
DEFINE_DOTS_OF(WORDS, MIN_NONE)
DEFINE_DOTS_OF(WORDS, MIN_32)
DEFINE_DOTS_OF(WORDS, MIN_16)
static const dots_fn dots_of[][2][3] = {DOTS_OF(WORDS, MIN_NONE), DOTS_OF(WORDS, MIN_32), DOTS_OF(WORDS, MIN_16)};

// batch_dots is np <= 2 panels times the nt <= RM_BATCH tokens of a batch; of the rows the
// first nrows are stored to out[i]. It goes lane by lane, so that what the tokens multiply, an
// eighth of the panels, stays in the first-level cache.
static void batch_dots(const dots_fn dots[3], const panel *p, int np, const token *x, int64_t nt, float *const *out,
                       int64_t off, int64_t nrows, const rm_row_sums *s) {
	pfloat lanes[2][RM_BATCH][8];
	for (int l = 0; l < 8; l++) {
		for (int64_t k = 0, n; k < nt; k += n) {
			int size = nt - k >= 4 ? 2 : nt - k >= 2 ? 1 : 0;
			n = 1 << size;
			pfloat *sums[2] = {&lanes[0][k][l], &lanes[1][k][l]};
			dots[size](p, x + k, l * p->supers, sums);
		}
	}
	for (int a = 0; a < np; a++) {
		int64_t rows = nrows - PANEL_ROWS * a < PANEL_ROWS ? nrows - PANEL_ROWS * a : PANEL_ROWS;
		for (int64_t k = 0; k < nt; k++) give_sums(lanes[a][k], s, out[k] + off + PANEL_ROWS * a, rows);
	}
}

// PANELS_MAX panels are packed before the tokens run over them, as many as fit
// in RM_PANELS_BYTES; so the activations pass through the cache once per
// several panels.
#define PANELS_MAX (RM_TILE_ROWS / PANEL_ROWS)

typedef void (*pack_fn)(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const panel *p);

// format is how panels and batches lie in memory.
typedef struct {
	int64_t group; // bytes of a group in a panel
	panel (*panel_at)(uint8_t *mem, int64_t groups);
	token (*token_at)(const uint8_t *batch, int64_t i, int64_t groups);
} format;

static const format words = {PANEL_GROUP, panel_at, token_at};

// panels computes a tile over t->batches.
static void panels(const format *f, pack_fn pack_rows, const dots_fn dots[2][3], const rm_tile *t) {
	int64_t groups = rm_act_padded(t->cols) / 32, size = f->group * groups;
	int64_t at_once = RM_PANELS_BYTES / size;
	at_once = at_once < 1 ? 1 : at_once > PANELS_MAX ? PANELS_MAX : at_once;
	for (int64_t r0 = 0; r0 < t->nrows; r0 += PANEL_ROWS * at_once) {
		int64_t end = t->nrows - r0 < PANEL_ROWS * at_once ? t->nrows : r0 + PANEL_ROWS * at_once;
		panel p[PANELS_MAX];
		int n = 0;
		for (int64_t r = r0; r < end; r += PANEL_ROWS, n++) {
			p[n] = f->panel_at(t->scratch + size * n, groups);
			int64_t rows = end - r < PANEL_ROWS ? end - r : PANEL_ROWS;
			pack_rows(t->w + r * t->row_bytes, t->row_bytes, rows, t->cols, &p[n]);
		}
		const uint8_t *batch = t->batches;
		for (int64_t i = 0; i < t->nx; i += RM_BATCH, batch += rm_batch_bytes(t->cols)) {
			int64_t nt = t->nx - i < RM_BATCH ? t->nx - i : RM_BATCH;
			token x[RM_BATCH];
			for (int64_t k = 0; k < nt; k++) x[k] = f->token_at(batch, k, groups);
			for (int k = 0; k < n; k += 2) {
				int64_t r = r0 + PANEL_ROWS * k;
				int np = n - k < 2 ? n - k : 2;
				batch_dots(dots[np - 1], p + k, np, x, nt, t->out + i, t->off + r, end - r, &t->sums);
			}
		}
	}
}

#define DEFINE_PACK(name, kind, min, bytes, holds) \
	static void pack_##holds##_##name(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const panel *p) { \
		pack(unpack_##name, holds, kind, min, bytes, w, row_bytes, nrows, cols, p); \
	}

#if PANELS_OF_BYTES
DEFINE_DOTS_OF(KIND_U, MIN_32)
DEFINE_DOTS_OF(KIND_S, MIN_NONE)
DEFINE_DOTS_OF(KIND_UK, MIN_16)
DEFINE_DOTS_OF(KIND_SK, MIN_NONE)
static const dots_fn dots_of_bytes[][2][3] = {
    [KIND_U] = DOTS_OF(KIND_U, MIN_32),
    [KIND_S] = DOTS_OF(KIND_S, MIN_NONE),
    [KIND_UK] = DOTS_OF(KIND_UK, MIN_16),
    [KIND_SK] = DOTS_OF(KIND_SK, MIN_NONE),
};
static const format bytes_format = {BYTE_GROUP, byte_panel_at, byte_token_at};
#define DEFINE_BYTES(name, kind, min, bytes) \
	DEFINE_PACK(name, kind, min, bytes, BYTES) \
	static void bytes_##name(const rm_tile *t) { panels(&bytes_format, pack_BYTES_##name, dots_of_bytes[kind], t); }
#define TILE_OF_BYTES(name, min, t) bytes_##name(t)
#else
#define DEFINE_BYTES(name, kind, min, bytes)
#define TILE_OF_BYTES(name, min, t) panels(&words, pack_WORDS_##name, dots_of[min], t)
#endif

#define DEFINE_TILE(name, type, kind, min, bytes) \
	DEFINE_PACK(name, kind, min, bytes, WORDS) \
	DEFINE_BYTES(name, kind, min, bytes) \
	static void tile_##name(const rm_tile *t) { \
		if (!t->batches) { \
			rows_##name(t); \
		} else if (t->upper_only) { \
			TILE_OF_BYTES(name, min, t); \
		} else { \
			panels(&words, pack_WORDS_##name, dots_of[min], t); \
		} \
	}
EACH_TYPE(DEFINE_TILE)
