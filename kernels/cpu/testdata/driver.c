// Runs the kernels of every level on small shapes, meant to be built with
// sanitizers, and checks the exponential, the float16 conversions,
// the approximate scores and how work is divided.
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "approx_scores.h"
#include "matmul.h"

static int failures;

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			printf(__VA_ARGS__); \
			printf(" (line %d)\n", __LINE__); \
			if (++failures > 20) exit(1); \
		} \
	} while (0)

static uint64_t state = 88172645463325252u;

static uint32_t next(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

static int same(float a, float b) { return rm_float_to_bits(a) == rm_float_to_bits(b); }

static void check_half(const rm_pool *p, int level) {
	for (uint32_t h = 0; h < 0x10000; h += 8) {
		uint16_t in[8], back[8];
		float wide[8];
		for (int i = 0; i < 8; i++) in[i] = (uint16_t)(h + (uint32_t)i);
		rm_f16_to_f32_row(p, wide, in, 8);
		rm_f32_to_f16_row(p, back, wide, 8);
		for (int i = 0; i < 8; i++) {
			CHECK(same(wide[i], rm_f16_to_f32(in[i])), "level %d half %04x widens differently", level, in[i]);
			CHECK(back[i] == rm_f32_to_f16(wide[i]), "level %d half %04x narrows differently", level, in[i]);
			int nan = (in[i] & 0x7fff) > 0x7c00;
			CHECK(nan || back[i] == in[i], "level %d half %04x returns as %04x", level, in[i], back[i]);
		}
	}
	for (int n = 0; n < 200000; n++) {
		float f[9];
		uint16_t h[9];
		for (int i = 0; i < 9; i++) {
			// any bits, and often those near the limits of float16
			uint32_t bits = next();
			if (n % 2) bits = (bits & 0x80007fff) | (96 + next() % 50) << 23 | (next() % 4 ? 0 : 0x1000);
			f[i] = rm_bits_to_float(bits);
		}
		rm_f32_to_f16_row(p, h, f, 9);
		for (int i = 0; i < 9; i++) {
			CHECK(h[i] == rm_f32_to_f16(f[i]), "level %d float %08x: %04x, alone %04x", level, rm_float_to_bits(f[i]), h[i],
			      rm_f32_to_f16(f[i]));
		}
	}
}

// check_exp: the exponential's error, and that the vector form of SwiGLU has
// the bits of the scalar one.
static void check_exp(const rm_pool *p, int level) {
	const rm_kernels *k = rm_kernels_of(p);
	double worst = 0;
	for (int n = 0; n < 60000; n++) {
		float x = -88.5f + 177.5f * (float)(next() >> 8) / 16777216.0f;
		if (n % 10 == 0) x *= 0.01f;
		if (x > -87 && x < 88) {
			double want = exp((double)x), got = (double)rm_expf(x);
			double ulp = ldexp(1, ilogb(want) - 23), error = fabs(got - want) / ulp;
			if (error > worst) worst = error;
		}
		float g[9], u[9], mid[9];
		for (int i = 0; i < 9; i++) {
			g[i] = i % 2 ? x : -x + (float)i * 0.125f;
			u[i] = (float)(int32_t)next() * 0x1p-30f;
		}
		if (n % 100 == 0) g[n / 100 % 8] = n % 200 ? NAN : INFINITY;
		if (n % 100 == 1) g[n / 100 % 8] = n % 200 == 1 ? -INFINITY : 0;
		float clamp = n % 3 ? 7 : 0;
		k->glu(mid, g, u, 9, 0.7f, clamp);
		for (int i = 0; i < 9; i++) {
			float want = rm_glu(g[i], u[i], 0.7f, clamp);
			CHECK(same(mid[i], want) || (isnan(mid[i]) && isnan(want)), "level %d glu(%g, %g) = %g, alone %g", level,
			      (double)g[i], (double)u[i], (double)mid[i], (double)want);
		}
	}
	CHECK(worst < 2, "rm_expf is off by %g ulp", worst);
	CHECK(rm_expf(-200) == 0 && isinf(rm_expf(89)) && isnan(rm_expf(NAN)) && rm_expf(0) == 1, "rm_expf at its ends");
}

// exact returns memory of exactly n bytes, so that a read beyond it is caught.
static void *exact(size_t n) {
	void *p = malloc(n ? n : 1);
	if (!p) exit(2);
	return p;
}

static void random_bytes(uint8_t *p, size_t n) {
	for (size_t i = 0; i < n; i++) p[i] = (uint8_t)next();
}

static void check_type(rm_pool *p, int32_t type, int64_t cols, int64_t rows, int64_t tokens) {
	int64_t row_bytes = cols / rm_block_elements(type) * rm_block_bytes(type);
	uint8_t *data = exact((size_t)(rows * row_bytes));
	float *x = exact((size_t)(tokens * cols) * sizeof(float)), *out = exact((size_t)(tokens * rows) * sizeof(float));
	random_bytes(data, (size_t)(rows * row_bytes));
	for (int64_t i = 0; i < tokens * cols; i++) x[i] = (float)(int32_t)next() * 0x1p-30f;
	float *scales = exact((size_t)rows * sizeof(float)); // one of a matrix, and one of each expert
	for (int64_t i = 0; i < rows; i++) scales[i] = 0.5f + (float)i;
	rm_weight w = {data, cols, rows, row_bytes, rows * row_bytes, 1, rows % 2 ? scales : NULL, 0, type};
	rm_product product = {w, out};
	CHECK(rm_matmul(p, x, tokens, cols, &product, 1) == RM_OK, "matmul");
	int32_t id = (int32_t)rows - 1;
	float *embedded = exact((size_t)cols * sizeof(float));
	rm_embed(p, embedded, &w, &id, 1);
	free(embedded);
	if (rows % 2 == 0 && tokens % 2 == 0) { // two groups of half the rows
		rm_weight halves = w;
		halves.rows /= 2;
		halves.slices = 2;
		halves.slice_bytes = halves.rows * row_bytes;
		CHECK(rm_matmul_grouped(p, out, x, tokens / 2, &halves) == RM_OK, "grouped");
	}
	if (cols % (2 * rm_block_elements(type)) == 0 && tokens % 2 == 0) { // of half the columns
		rm_weight halves = w;
		halves.cols /= 2;
		halves.slices = 2;
		halves.slice_bytes = row_bytes / 2;
		CHECK(rm_matmul_grouped(p, out, x, tokens / 2, &halves) == RM_OK, "grouped by columns");
	}
	// rows as experts of one row each, used once or twice
	int32_t *offsets = exact((size_t)(rows + 1) * 4), *slots = exact((size_t)tokens * 4);
	float *weights = exact((size_t)tokens * 4), *mid = exact((size_t)(tokens * rows) * 4);
	for (int64_t i = 0; i <= rows; i++) offsets[i] = (int32_t)(i * tokens / rows);
	for (int64_t i = 0; i < tokens; i++) {
		slots[i] = (int32_t)i;
		weights[i] = i % 3 == 1 ? 0 : 0.5f;
	}
	rm_weight stack = w;
	stack.rows = 1;
	stack.slices = rows;
	stack.slice_bytes = row_bytes;
	stack.scale_step = stack.scales ? 1 : 0;
	rm_experts e = {offsets, slots, weights, tokens, 1, rows, 0, rows};
	CHECK(rm_expert_gate_up(p, mid, x, &stack, &stack, 1, &e) == RM_OK, "gate up");
	CHECK(rm_expert_down(p, out, x, &stack, &e) == RM_OK, "down");
	free(offsets);
	free(slots);
	free(weights);
	free(mid);
	free(scales);
	free(data);
	free(x);
	free(out);
}

typedef struct {
	int32_t *hits;
	int64_t n;
} hits_arg;

static void hit(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	hits_arg *a = arg;
	for (int64_t i = begin; i < end; i++) a->hits[i]++;
}

static void check_pool(rm_pool *p) {
	for (int n = 0; n < 2000; n++) {
		int64_t count = next() % 100, grain = next() % 9;
		hits_arg a = {exact((size_t)count * 4), count};
		for (int64_t i = 0; i < count; i++) a.hits[i] = 0;
		rm_pool_for(p, count, grain, hit, &a);
		for (int64_t i = 0; i < count; i++) CHECK(a.hits[i] == 1, "item %d of %d ran %d times", (int)i, (int)count, a.hits[i]);
		free(a.hits);
	}
}

// A worker that is held up in its first item must not hold up the other items.
typedef struct {
	int64_t items;
	_Atomic int64_t others; // items that the other workers have computed
} held_arg;

static void held(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	held_arg *a = arg;
	if (begin > 0) {
		atomic_fetch_add(&a->others, end - begin);
		return;
	}
	time_t deadline = time(NULL) + 60;
	while (atomic_load(&a->others) < a->items - end && time(NULL) < deadline) sched_yield();
}

// time_with_slow is the time that `threads` take for equal items of one unit, each thread
// taking the next item when it is free, one at half the speed of the others.
static double time_with_slow(int64_t items, int64_t threads) {
	double free_at[64] = {0}, last = 0;
	for (int64_t i = 0; i < items; i++) {
		int64_t first = 0;
		for (int64_t t = 1; t < threads; t++) first = free_at[t] < free_at[first] ? t : first;
		free_at[first] += first == 0 ? 2 : 1;
		last = free_at[first] > last ? free_at[first] : last;
	}
	return last;
}

// check_slow_thread: a thread at half speed, such as a small core or one that another
// process shares, takes fewer items, and items are small enough for that.
static void check_slow_thread(int level) {
	for (int threads = 2; threads <= 16; threads *= 2) {
		rm_pool *p = rm_pool_new(threads, level);
		if (!p) exit(2);
		held_arg a = {.items = 50};
		rm_pool_for(p, a.items, 1, held, &a);
		CHECK(a.others == a.items - 1, "%d threads: a slow one held up %d items", threads, (int)(a.items - 1 - a.others));
		for (int64_t rows = 512; rows <= 1 << 17; rows = rows * 5 / 4) {
			int64_t tile_rows, parts;
			rm_split(p, rows, 16, RM_LONG_TILE, 1, &tile_rows, &parts);
			int64_t items = (rows + tile_rows - 1) / tile_rows * parts;
			double ideal = (double)items / (threads - 0.5), slow = time_with_slow(items, threads);
			// Equal shares would take up to 1.9 times as long.
			CHECK(rows < 6 * 16 * threads || slow <= 1.3 * ideal, "%d threads, %d rows in tiles of %d: a slow thread makes the product take %.2f times the best",
			      threads, (int)rows, (int)tile_rows, slow / ideal);
		}
		rm_pool_free(p);
	}
}

// check_approx: approximate scores are off by less than the bound, and the
// bound is not so wide as to be useless.
static void check_approx(int level, int64_t heads, int64_t dim, int64_t n, double length) {
	const rm_approx *approx = rm_approx_at(level, dim);
	if (!approx) return;
	int64_t blocks = (n + RM_APPROX_ENTRIES - 1) / RM_APPROX_ENTRIES, padded = rm_approx_heads(heads);
	float *q = exact((size_t)(heads * dim) * sizeof(float)), *w = exact((size_t)heads * sizeof(float));
	uint16_t *keys = exact((size_t)(n * dim) * sizeof(uint16_t));
	float *weight = exact((size_t)padded * sizeof(float)), *score = exact((size_t)n * sizeof(float));
	// Both are read and written in whole cache lines.
	uint16_t *apart = aligned_alloc(64, (size_t)(blocks * rm_approx_block(dim)) * sizeof(uint16_t));
	uint16_t *query = aligned_alloc(64, (size_t)(padded / RM_APPROX_HEADS * rm_approx_block(dim)) * sizeof(uint16_t));
	if (!apart || !query) exit(2);
	for (int64_t i = 0; i < heads * dim; i++) q[i] = (float)((double)(int32_t)next() * length);
	for (int64_t i = 0; i < heads; i++) w[i] = (float)(int32_t)next() * 0x1p-31f;
	for (int64_t i = 0; i < n * dim; i++) keys[i] = rm_f32_to_f16((float)(int32_t)next() * 0x1p-31f);
	uint32_t most = 0;
	for (int64_t b = 0; b < blocks; b++) {
		int64_t e = b * RM_APPROX_ENTRIES, left = n - e < RM_APPROX_ENTRIES ? n - e : RM_APPROX_ENTRIES;
		uint32_t norm = approx->keys(apart + b * rm_approx_block(dim), keys + e * dim, left, dim);
		most = norm > most ? norm : most;
	}
	double bound = rm_approx_bound(approx->query(query, weight, q, w, 0.25f, heads, dim), sqrt((double)rm_bits_to_float(most)), heads, dim);
	approx->scores(score, apart, n, query, weight, heads, dim);
	double worst = 0, largest = 0;
	for (int64_t e = 0; e < n; e++) {
		double want = 0;
		for (int64_t h = 0; h < heads; h++) {
			double dot = 0;
			for (int64_t d = 0; d < dim; d++) dot += (double)q[h * dim + d] * (double)rm_f16_to_f32(keys[e * dim + d]);
			if (dot > 0) want += (double)w[h] * 0.25 * dot;
		}
		double off = fabs(want - (double)score[e]);
		worst = off > worst ? off : worst;
		largest = fabs(want) > largest ? fabs(want) : largest;
	}
	CHECK(worst <= bound, "approximate scores of %d heads by %d are off by %g, bound %g", (int)heads, (int)dim, worst, bound);
	CHECK(worst > 0 && bound < 0.02 * largest, "approximate scores of %d heads by %d: bound %g, largest score %g, worst error %g", (int)heads,
	      (int)dim, bound, largest, worst);
	uint16_t infinite[32] = {[7] = 0x7c00}, *part = aligned_alloc(64, 4096);
	if (!part) exit(2);
	CHECK(approx->keys(part, infinite, 1, 32) >= rm_float_to_bits(INFINITY), "an infinite key is not seen");
	free(part);
	free(q);
	free(w);
	free(keys);
	free(weight);
	free(score);
	free(apart);
	free(query);
}

int main(void) {
	for (int level = 0; level <= RM_LEVEL_NEON; level++) {
		if (!rm_cpu_has(level)) continue;
		rm_pool *p = rm_pool_new(3, level);
		if (!p) return 2;
		check_pool(p);
		check_half(p, level);
		check_exp(p, level);
		check_approx(level, 64, 128, 200, 0x1p-31);
		check_approx(level, 67, 96, 33, 0x1p-41);
		check_approx(level, 5, 32, 50, 0x1p31);
		for (int32_t type = 0; type < RM_TYPES; type++) {
			if (!rm_can_compute(type)) continue;
			int block = rm_block_elements(type);
			check_type(p, type, block == 1 ? 37 : block, 3, 1);
			check_type(p, type, block == 1 ? 37 : block * 9, 18, 4);
			check_type(p, type, block == 1 ? 37 : block * 3, 67, 21);
			check_type(p, type, block == 1 ? 37 : block * 2, 2, 70);
		}
		rm_pool_free(p);
	}
	check_slow_thread(RM_LEVEL_PORTABLE);
	if (failures) return 1;
	printf("all checks passed\n");
	return 0;
}
