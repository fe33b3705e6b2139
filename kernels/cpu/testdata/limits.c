// Measures from how many tokens which kernel is the fastest, by level and type, on one
// thread with weights from memory, and prints the tables of choice.c. Run it by
//
//	go test ./kernels/cpu -run xxx -bench Limits -benchtime 1x
//
// Each pair of kernels runs in turns; the time of a kernel is the sum over pieces of 4 MB
// of the least time that each piece took, which other work on the machine changes little.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "matmul.h"

enum { COLS = 4096,
	   ROWS = 1024,
	   ROUNDS = 7,
	   WAYS = 3 };

static const struct {
	int32_t type;
	const char *name;
} types[] = {
    {RM_Q8_0, "Q8_0"},
    {RM_Q4_0, "Q4_0"},
    {RM_IQ4_NL, "IQ4_NL"},
    {RM_MXFP4, "MXFP4"},
    {RM_IQ4_XS, "IQ4_XS"},
    {RM_Q4_K, "Q4_K"},
    {RM_Q5_K, "Q5_K"},
    {RM_Q6_K, "Q6_K"},
    {RM_Q2_K, "Q2_K"},
    {RM_Q3_K, "Q3_K"},
    {RM_IQ2_XXS, "IQ2_XXS"},
    {RM_Q4_1, "Q4_1"},
    {RM_Q5_0, "Q5_0"},
    {RM_Q5_1, "Q5_1"},
};

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t state = 2463534242u;

static uint32_t next(void) {
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

// work is one matrix after the other and the tokens that they are multiplied by.
typedef struct {
	int32_t type;
	uint8_t *weights, *acts, *batches, *scratch;
	int64_t row_bytes, matrices;
	float *out;
} work;

// once multiplies matrix m by nx tokens with the kernels k.
static double once(const rm_kernels *k, rm_layout layout, const work *w, int64_t m, int64_t nx) {
	const void *x[64];
	float *out[64];
	for (int64_t i = 0; i < nx; i++) {
		x[i] = w->acts + i * rm_act_bytes(COLS);
		out[i] = w->out + i * ROWS;
	}
	double begin = now();
	if (layout == RM_IN_BATCHES) {
		for (int64_t i = 0; i < nx; i += RM_BATCH) {
			rm_gather(k, layout, x + i, nx - i < RM_BATCH ? nx - i : RM_BATCH, COLS, w->batches + i / RM_BATCH * rm_batch_bytes(COLS));
		}
	}
	const uint8_t *data = w->weights + m * ROWS * w->row_bytes;
	int64_t rows = rm_long_tile(k, layout, nx, w->row_bytes);
	for (int64_t r = 0; r < ROWS; r += rows) {
		rm_tile t = {
		    .type = w->type,
		    .w = data + r * w->row_bytes,
		    .row_bytes = w->row_bytes,
		    .cols = COLS,
		    .nrows = rows,
		    .next = r + rows < ROWS || m + 1 < w->matrices ? data + (r + rows) * w->row_bytes : NULL,
		    .x = x,
		    .nx = nx,
		    .layout = layout,
		    .upper_only = k->upper_only,
		    .batches = layout ? w->batches : NULL,
		    .out = out,
		    .off = r,
		    .scratch = w->scratch,
		};
		rm_tile_run(k, &t);
	}
	return now() - begin;
}

// measure gives the seconds of each way for nx tokens: rows, lanes, panels.
static void measure(const rm_kernels ways[WAYS], const work *w, int64_t nx, double seconds[WAYS]) {
	double least[WAYS][64];
	for (int round = 0; round < ROUNDS; round++) {
		for (int way = 0; way < WAYS; way++) {
			for (int64_t m = 0; m < w->matrices; m++) {
				double s = once(&ways[way], way == 2 ? RM_IN_BATCHES : RM_BY_ROWS, w, m, nx);
				if (round == 0 || s < least[way][m]) least[way][m] = s;
			}
		}
	}
	for (int way = 0; way < WAYS; way++) {
		seconds[way] = 0;
		for (int64_t m = 0; m < w->matrices; m++) seconds[way] += least[way][m];
	}
}

// limits measures a type with activations of 15 or 8 bits, prints the times, and gives from
// how many tokens lanes and panels are used.
static void limits(rm_pool *p, const char *name, size_t type, const work *w, int upper_only, int64_t from[2]) {
	static const int64_t tokens[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
	enum { COUNT = sizeof tokens / sizeof *tokens };
	rm_pool_set_upper_only(p, upper_only);
	const rm_kernels *k = rm_kernels_of(p);
	rm_kernels ways[WAYS] = {*k, *k, *k};
	rm_limits all[RM_TYPES];
	memset(all, 0, sizeof all);
	ways[0].lanes = NULL;
	ways[1].limits = all;
	float x[COLS];
	for (int64_t n = 0; n < 64; n++) {
		for (int c = 0; c < COLS; c++) x[c] = (float)(int32_t)next() * 0x1p-31f;
		k->quantise(x, COLS, w->acts + n * rm_act_bytes(COLS), upper_only);
	}
	from[0] = from[1] = 0;
	printf("%s %s, %d bits, ns for 256 weights and all tokens: tokens rows lanes%s panels\n", name, types[type].name, upper_only ? 8 : 15,
	       k->lanes && k->lanes[w->type] ? "" : " (rows)");
	for (int t = 0; t < COUNT; t++) {
		double s[WAYS], each = 1e9 / (double)(w->matrices * ROWS * (COLS / 256));
		measure(ways, w, tokens[t], s);
		printf("%4d %8.1f %8.1f %8.1f\n", (int)tokens[t], s[0] * each, s[1] * each, s[2] * each);
		int lanes = s[1] <= 1.03 * s[0]; // where there is little between them, one kernel less is used
		if (!lanes) from[0] = 0;
		if (lanes && !from[0]) from[0] = tokens[t];
		int panels = s[2] <= s[1] && s[2] <= s[0];
		if (!panels) from[1] = 0;
		if (panels && !from[1]) from[1] = tokens[t];
	}
	for (int i = 0; i < 2; i++) from[i] = from[i] ? from[i] : tokens[COUNT - 1] + 1;
	fflush(stdout);
}

static void level(int number, const char *name) {
	rm_pool *p = rm_pool_new(1, number);
	if (!p) exit(2);
	const rm_kernels *k = rm_kernels_of(p);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		int32_t type = types[i].type;
		work w = {.type = type, .row_bytes = COLS / rm_block_elements(type) * rm_block_bytes(type)};
		w.matrices = (64 << 20) / (ROWS * w.row_bytes);
		int64_t size = w.matrices * ROWS * w.row_bytes;
		w.weights = rm_alloc((size_t)size);
		w.acts = rm_alloc((size_t)(64 * rm_act_bytes(COLS)));
		w.batches = rm_alloc((size_t)(4 * rm_batch_bytes(COLS)));
		w.scratch = rm_alloc(rm_tile_scratch(COLS));
		w.out = rm_alloc(sizeof(float) * 64 * ROWS);
		if (!w.weights || !w.acts || !w.batches || !w.scratch || !w.out) exit(2);
		for (int64_t n = 0; n < size; n++) w.weights[n] = (uint8_t)((next() & 0x3f) | (type == RM_MXFP4 ? 0x40 : 0)); // scales stay finite and normal
		int64_t from[2][2];
		for (int upper_only = 0; upper_only < 2; upper_only++) limits(p, name, i, &w, upper_only, from[upper_only]);
		int has_lanes = k->lanes && k->lanes[type];
		printf("	[RM_%s] = {%d, %d, %d},\n", types[i].name, has_lanes ? (int)from[0][0] : 0, (int)from[0][1], (int)from[1][1]);
		fflush(stdout);
		rm_free(w.weights, (size_t)size);
		rm_free(w.acts, (size_t)(64 * rm_act_bytes(COLS)));
		rm_free(w.batches, (size_t)(4 * rm_batch_bytes(COLS)));
		rm_free(w.scratch, rm_tile_scratch(COLS));
		rm_free(w.out, sizeof(float) * 64 * ROWS);
	}
	rm_pool_free(p);
}

int main(void) {
	if (rm_cpu_has(RM_LEVEL_AVX2)) level(RM_LEVEL_AVX2, "avx2");
	if (rm_cpu_has(RM_LEVEL_AVX512)) level(RM_LEVEL_AVX512, "avx512");
	return 0;
}
