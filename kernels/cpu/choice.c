// Which kernel computes which products: by level, type, shape and number of tokens.
//
// Kernels differ in what they pay once for some rows and what they pay for each token:
//
//	rows     weights are unpacked row by row; for one token the fastest
//	lanes    several rows are transposed and unpacked, little more than rows, and
//	         each token costs little more than its products
//	few      the same with AMX tiles
//	panels   rows are unpacked and transposed to int16 in scratch: the most work
//	         once, the least for each token
//
// All give the same bits.
#include "matmul.h"

#if RM_X86
// {lanes, panels, panels with activations of 8 bits}, lanes 0 where there is no such kernel, the
// last one 0 where panels take as long with 8 bits: by the benchmark of testdata/limits.c.
// AVX2 on an EPYC that has no more (Zen 3), 2026-11-30.
const rm_limits rm_limits_avx2[RM_TYPES] = {
    [RM_Q8_0] = {0, 4, 0},
    [RM_Q4_0] = {0, 6, 0},
    [RM_Q4_1] = {0, 2, 0},
    [RM_Q5_0] = {0, 2, 0},
    [RM_Q5_1] = {0, 2, 0},
    [RM_IQ4_NL] = {0, 4, 0},
    [RM_MXFP4] = {0, 6, 0},
    [RM_IQ4_XS] = {0, 4, 0},
    [RM_Q4_K] = {0, 4, 0},
    [RM_Q5_K] = {0, 3, 0},
    [RM_Q6_K] = {0, 4, 0},
    [RM_Q2_K] = {0, 6, 0},
    [RM_Q3_K] = {0, 8, 0},
    [RM_IQ2_XXS] = {0, 3, 0},
};

// An EPYC 9004 (Zen 4, no AMX), 2026-11-27 and 28. Where two kernels were within 10 %, which is
// what runs on that busy host differed by, lanes were taken, or the kernel of fewer tokens. 49
// is more tokens than the benchmark tries. With 8 bits on such a host, 2026-11-30.
const rm_limits rm_limits_avx512[RM_TYPES] = {
    [RM_Q8_0] = {3, 24, 24},
    [RM_Q4_0] = {3, 32, 24},
    [RM_Q4_1] = {0, 6, 2},
    [RM_Q5_0] = {0, 3, 2},
    [RM_Q5_1] = {0, 3, 2},
    [RM_IQ4_NL] = {3, 48, 24},
    [RM_MXFP4] = {3, 48, 24},
    [RM_IQ4_XS] = {3, 49, 24},
    [RM_Q4_K] = {3, 49, 32},
    [RM_Q5_K] = {3, 49, 24},
    [RM_Q6_K] = {3, 16, 4},
    [RM_Q2_K] = {3, 49, 49},
    [RM_Q3_K] = {3, 48, 32},
    [RM_IQ2_XXS] = {0, 24, 16},
};

// With AMX the tiles take over early: not measured here. A host with AMX measured lanes of
// Q4_K and Q2_K against rows as they were then (docs/notes/decode.md).
#define WITH_AMX {2, 6, 0}
const rm_limits rm_limits_amx[RM_TYPES] = {
    [RM_Q8_0] = {3, 6, 0},
    [RM_Q4_0] = WITH_AMX,
    [RM_IQ4_NL] = WITH_AMX,
    [RM_MXFP4] = {3, 6, 0},
    [RM_IQ4_XS] = WITH_AMX,
    [RM_Q4_K] = WITH_AMX,
    [RM_Q5_K] = {3, 6, 0},
    [RM_Q6_K] = {3, 6, 0},
    [RM_Q2_K] = WITH_AMX,
    [RM_Q3_K] = WITH_AMX,
};
#endif

void rm_set_add(rm_set *s, const rm_kernels *k, int32_t type, int64_t rows, int64_t cols, int several) {
	if (!rm_uses_act(type)) return;
	int whole = cols % 256 == 0;
	int few = k->few && rows >= 16 && whole && !several && k->few(type);
	int64_t from = whole && k->limits && k->limits[type].panels ? k->limits[type].panels : k->gather_from;
	if (whole && k->limits && k->upper_only && k->limits[type].panels8) from = k->limits[type].panels8;
	s->few = few && (s->few || !s->quantised);
	s->panels_from = from > s->panels_from ? from : s->panels_from;
	s->quantised = 1;
}

rm_layout rm_layout_for(const rm_kernels *k, const rm_set *s, int64_t nx) {
	if (!s->quantised) return RM_BY_ROWS;
	if (s->few && nx >= k->few_from && nx <= RM_FEW_TOKENS) return RM_AS_FEW;
	return k->gather && nx >= s->panels_from ? RM_IN_BATCHES : RM_BY_ROWS;
}

// A tile of GEMV has at least this many bytes, if RM_LONG_TILE allows it.
#define LONG_BYTES (512 << 10)

int64_t rm_long_tile(const rm_kernels *k, rm_layout layout, int64_t nx, int64_t row_bytes) {
	int64_t rows = RM_TILE_ROWS;
	if (!k->row || layout != RM_BY_ROWS || nx > 4) return rows; // more tokens read a tile several times
	while (rows < RM_LONG_TILE && rows * row_bytes < LONG_BYTES) rows *= 2;
	return rows;
}

// dense_rows is how many rows are converted to float32 at a time: for many tokens as many as
// RM_PANELS_BYTES have room for.
static int64_t dense_rows(const rm_tile *t) {
	int64_t most = RM_PANELS_BYTES / (4 * t->cols) / 4 * 4;
	if (t->nx < RM_DENSE_TOKENS || most < 4) return 4;
	return most < RM_DENSE_ROWS ? most : RM_DENSE_ROWS;
}

// tile_dense converts some rows at a time to float32 and multiplies them.
static void tile_dense(const rm_kernels *k, const rm_tile *t) {
	const uint8_t *rows[RM_DENSE_ROWS];
	int64_t most = dense_rows(t);
	for (int64_t r = 0; r < t->nrows; r += most) {
		int64_t n = t->nrows - r < most ? t->nrows - r : most;
		for (int64_t i = 0; i < n; i++) {
			const uint8_t *w = t->w + (r + i) * t->row_bytes;
			rows[i] = w;
			if (t->type != RM_F32) {
				rows[i] = t->scratch + i * t->cols * 4;
				k->widen(t->type, w, (float *)(void *)(t->scratch + i * t->cols * 4), t->cols);
			}
		}
		k->dense(rows, n, t->cols, (const float *const *)t->x, t->nx, t->out, t->off + r);
	}
}

// skip removes the first n rows of a tile.
static void skip(rm_tile *t, int64_t n) {
	t->w += n * t->row_bytes;
	t->off += n;
	t->nrows -= n;
}

// takes_lanes says whether lanes is the fastest kernel for a tile with rows of activations.
static int takes_lanes(const rm_kernels *k, const rm_tile *t) {
	return k->lanes && k->lanes[t->type] && t->nx >= k->limits[t->type].lanes && t->nrows >= k->lane_rows && t->cols % 256 == 0;
}

// scale_products multiplies what the tile computed by its scale.
static void scale_products(const rm_tile *t) {
	int64_t sums = t->sums.count > 0 ? t->sums.count : 1;
	for (int64_t n = 0; n < t->nx; n++) {
		for (int64_t i = 0; i < sums; i++) {
			float *out = t->out[n] + t->off + i * t->sums.apart;
			for (int64_t r = 0; r < t->nrows; r++) out[r] *= *t->scale;
		}
	}
}

// run_products computes the tile but for its scale.
static void run_products(const rm_kernels *k, const rm_tile *t) {
	if (t->layout == RM_AS_FEW) {
		k->few(t->type)(t);
		return;
	}
	rm_tile rest = *t;
	if (t->layout == RM_BY_ROWS && takes_lanes(k, t)) skip(&rest, k->lanes[t->type](t));
	if (rest.nrows == 0 || (t->layout == RM_BY_ROWS && k->row && k->row(&rest))) return;
	while (rest.nrows > 0) {
		rm_tile part = rest;
		part.nrows = rest.nrows < RM_TILE_ROWS ? rest.nrows : RM_TILE_ROWS;
		if (k->tile[t->type]) {
			k->tile[t->type](&part);
		} else {
			tile_dense(k, &part);
		}
		skip(&rest, part.nrows);
	}
}

void rm_tile_run(const rm_kernels *k, const rm_tile *t) {
	run_products(k, t);
	if (t->scale) scale_products(t);
}
