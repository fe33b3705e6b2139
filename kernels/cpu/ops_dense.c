// Norms, rotations and element-wise ops.
#include "ops.h"
#include "ops_kernels.h"
#include "simd.h"

#include <math.h>

const rm_op_kernels *rm_op_kernels_at(int level) {
#if RM_X86
	if (level == RM_LEVEL_AVX512 || level == RM_LEVEL_AMX) return &rm_op_kernels_avx512;
	if (level == RM_LEVEL_AVX2) return &rm_op_kernels_avx2;
#elif RM_NEON
	if (level == RM_LEVEL_NEON) return &rm_op_kernels_neon;
#endif
	(void)level;
	return &rm_op_kernels_portable;
}

typedef struct {
	const rm_op_kernels *k;
	float *out;
	const float *x, *weight;
	int64_t cols;
	float eps;
} norm_args;

static void norm_task(void *arg, int64_t begin, int64_t end, int worker) {
	const norm_args *a = arg;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		const float *x = a->x + t * a->cols;
		float mean = a->k->sum_squares(x, a->cols) / (float)a->cols;
		a->k->scale(a->out + t * a->cols, x, a->weight, 1.0f / sqrtf(mean + a->eps), a->cols);
	}
}

int rm_op_rms_norm(rm_pool *p, float *out, const float *x, const float *weight, int64_t rows, int64_t cols, float eps) {
	norm_args a = {rm_op_kernels_at(rm_pool_level(p)), out, x, weight, cols, eps};
	rm_pool_for(p, rows, rm_grain(cols), norm_task, &a);
	return RM_OK;
}

typedef struct {
	float *out;
	const float *x, *weight, *bias;
	int64_t cols;
	float eps;
} layer_norm_args;

// Sums are in double: rows are short, and the mean is taken away from elements that may
// be close to it.
static void layer_norm_task(void *arg, int64_t begin, int64_t end, int worker) {
	const layer_norm_args *a = arg;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		const float *x = a->x + t * a->cols;
		float *out = a->out + t * a->cols;
		double sum = 0, squares = 0;
		for (int64_t i = 0; i < a->cols; i++) sum += (double)x[i];
		double mean = sum / (double)a->cols;
		for (int64_t i = 0; i < a->cols; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
		double scale = 1 / sqrt(squares / (double)a->cols + (double)a->eps);
		for (int64_t i = 0; i < a->cols; i++) {
			out[i] = (float)(((double)x[i] - mean) * scale * (double)a->weight[i] + (double)a->bias[i]);
		}
	}
}

void rm_op_layer_norm(rm_pool *p, float *out, const float *x, const float *weight, const float *bias, int64_t rows,
                      int64_t cols, float eps) {
	layer_norm_args a = {out, x, weight, bias, cols, eps};
	rm_pool_for(p, rows, rm_grain(4 * cols), layer_norm_task, &a);
}

void rm_rope_angles(float *cosine, float *sine, int32_t pos, const float *freqs, int64_t rot_dim, float magnitude) {
	for (int64_t i = 0; i < rot_dim / 2; i++) {
		double angle = (float)pos * freqs[i]; // rounded to float first
		cosine[i] = (float)((double)magnitude * cos(angle));
		sine[i] = (float)((double)magnitude * sin(angle));
	}
}

// turn rotates n pairs, step elements from one to the next, each of elements that are
// apart from each other.
static inline void turn(float *x, const float *cosine, const float *sine, int64_t n, int64_t step, int64_t apart,
                        float sign) {
	for (int64_t i = 0; i < n; i++) {
		float *a = x + i * step, *b = a + apart;
		float x0 = *a, x1 = *b, c = cosine[i], s = sign * sine[i];
		*a = x0 * c - x1 * s;
		*b = x0 * s + x1 * c;
	}
}

void rm_rope_turn(float *x, const float *cosine, const float *sine, int64_t rot_dim, int halves, int inverse) {
	float sign = inverse ? -1.0f : 1.0f;
	if (halves) {
		turn(x, cosine, sine, rot_dim / 2, 1, rot_dim / 2, sign);
	} else {
		turn(x, cosine, sine, rot_dim / 2, 2, 1, sign);
	}
}

typedef struct {
	rm_pool *pool;
	rm_rope a;
} rope_args;

static void rope_task(void *arg, int64_t begin, int64_t end, int worker) {
	const rope_args *r = arg;
	const rm_rope *a = &r->a;
	float *cosine = rm_pool_scratch(r->pool, worker, (size_t)a->rot_dim * sizeof(float));
	float *sine = cosine + a->rot_dim / 2;
	for (int64_t t = begin; t < end; t++) {
		rm_rope_angles(cosine, sine, a->pos[t], a->freqs, a->rot_dim, a->magnitude);
		for (int64_t h = 0; h < a->heads; h++) {
			float *head = a->x + (t * a->heads + h) * a->head_dim;
			rm_rope_turn(a->front ? head : head + a->head_dim - a->rot_dim, cosine, sine, a->rot_dim, a->halves, a->inverse);
		}
	}
}

int rm_op_rope(rm_pool *p, rm_rope a) {
	if (rm_pool_reserve(p, (size_t)a.rot_dim * sizeof(float)) != RM_OK) return RM_E_MEMORY;
	rope_args r = {p, a};
	// a sine costs as much as many products
	rm_pool_for(p, a.rows, rm_grain(a.rot_dim * (20 + a.heads)), rope_task, &r);
	return RM_OK;
}

typedef struct {
	const rm_op_kernels *k;
	float *x;
	int64_t dim;
} hadamard_args;

static void hadamard_task(void *arg, int64_t begin, int64_t end, int worker) {
	const hadamard_args *a = arg;
	(void)worker;
	for (int64_t t = begin; t < end; t++) a->k->hadamard(a->x + t * a->dim, a->dim);
}

void rm_op_hadamard(rm_pool *p, float *x, int64_t rows, int64_t dim) {
	hadamard_args a = {rm_op_kernels_at(rm_pool_level(p)), x, dim};
	rm_pool_for(p, rows, rm_grain(4 * dim), hadamard_task, &a);
}

// Element-wise ops are divided into blocks, so that one long row gives work to
// all threads.
#define BLOCK 4096

typedef struct element_args element_args;
struct element_args {
	const rm_op_kernels *k;
	void (*run)(const element_args *e, int64_t at, int64_t n); // computes n elements from `at` on
	float *out;
	uint16_t *out_halves;
	const float *a, *b;
	const uint16_t *halves;
	int64_t n;
	float clamp;
};

static int64_t block_length(int64_t n, int64_t block) { return n - block * BLOCK < BLOCK ? n - block * BLOCK : BLOCK; }

static void element_task(void *arg, int64_t begin, int64_t end, int worker) {
	const element_args *e = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) e->run(e, i * BLOCK, block_length(e->n, i));
}

static void run_elements(rm_pool *p, int64_t grain, element_args e) {
	e.k = rm_op_kernels_at(rm_pool_level(p));
	rm_pool_for(p, (e.n + BLOCK - 1) / BLOCK, grain, element_task, &e);
}

static void swiglu(const element_args *e, int64_t at, int64_t n) {
	e->k->swiglu(e->out + at, e->a + at, e->b + at, n, e->clamp);
}

void rm_op_swiglu(rm_pool *p, float *out, const float *gate, const float *up, int64_t n, float clamp) {
	run_elements(p, 2, (element_args){.run = swiglu, .out = out, .a = gate, .b = up, .n = n, .clamp = clamp});
}

static void add(const element_args *e, int64_t at, int64_t n) { e->k->add(e->out + at, e->a + at, e->b + at, n); }

void rm_op_add(rm_pool *p, float *out, const float *a, const float *b, int64_t n) {
	run_elements(p, 8, (element_args){.run = add, .out = out, .a = a, .b = b, .n = n});
}

static void clear(const element_args *e, int64_t at, int64_t n) { memset(e->out + at, 0, (size_t)n * sizeof(float)); }

void rm_op_clear(rm_pool *p, float *x, int64_t n) { run_elements(p, 16, (element_args){.run = clear, .out = x, .n = n}); }

static void to_float16(const element_args *e, int64_t at, int64_t n) { e->k->to_float16(e->out_halves + at, e->a + at, n); }

void rm_op_to_float16(rm_pool *p, uint16_t *out, const float *x, int64_t n) {
	run_elements(p, 8, (element_args){.run = to_float16, .out_halves = out, .a = x, .n = n});
}

static void from_float16(const element_args *e, int64_t at, int64_t n) { e->k->from_float16(e->out + at, e->halves + at, n); }

void rm_op_from_float16(rm_pool *p, float *out, const uint16_t *x, int64_t n) {
	run_elements(p, 8, (element_args){.run = from_float16, .out = out, .halves = x, .n = n});
}

typedef struct {
	float *out;
	const float *x;
	const int32_t *rows;
	int64_t cols;
} gather_args;

static void gather_task(void *arg, int64_t begin, int64_t end, int worker) {
	const gather_args *g = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		memcpy(g->out + i * g->cols, g->x + g->rows[i] * g->cols, (size_t)g->cols * sizeof(float));
	}
}

void rm_op_gather(rm_pool *p, float *out, const float *x, const int32_t *rows, int64_t n, int64_t cols) {
	gather_args g = {out, x, rows, cols};
	rm_pool_for(p, n, rm_grain(cols / 4), gather_task, &g);
}

typedef struct {
	float *out;
	const float *x;
	int64_t cols, out_cols, x_cols;
} columns_args;

static void columns_task(void *arg, int64_t begin, int64_t end, int worker) {
	const columns_args *a = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		memcpy(a->out + i * a->out_cols, a->x + i * a->x_cols, (size_t)a->cols * sizeof(float));
	}
}

void rm_op_copy_columns(rm_pool *p, float *out, const float *x, int64_t rows, int64_t cols, int64_t out_cols,
                        int64_t x_cols) {
	columns_args a = {out, x, cols, out_cols, x_cols};
	rm_pool_for(p, rows, rm_grain(cols / 4), columns_task, &a);
}

typedef struct {
	const rm_op_kernels *k;
	float *out;
	const float *slots;
	int64_t used, cols, blocks; // blocks of a row
} slots_args;

static void slots_task(void *arg, int64_t begin, int64_t end, int worker) {
	const slots_args *a = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / a->blocks, block = i % a->blocks, at = block * BLOCK;
		a->k->sum_slots(a->out + t * a->cols + at, a->slots + t * a->used * a->cols + at, a->used, a->cols,
		                block_length(a->cols, block));
	}
}

void rm_op_sum_slots(rm_pool *p, float *out, const float *slots, int64_t rows, int64_t used, int64_t cols) {
	if (cols == 0) return;
	slots_args a = {rm_op_kernels_at(rm_pool_level(p)), out, slots, used, cols, (cols + BLOCK - 1) / BLOCK};
	rm_pool_for(p, rows * a.blocks, 1, slots_task, &a);
}

typedef struct {
	const rm_op_kernels *k;
	int64_t *sums;
	const float *terms;
	int64_t count, cols, blocks; // blocks of a row
	int add;
} exact_args;

static void exact_task(void *arg, int64_t begin, int64_t end, int worker) {
	const exact_args *a = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / a->blocks, block = i % a->blocks, at = block * BLOCK;
		a->k->sum_exact(a->sums + t * a->cols + at, a->terms + t * a->count * a->cols + at, a->count, a->cols,
		                block_length(a->cols, block), a->add);
	}
}

void rm_op_sum_exact(rm_pool *p, int64_t *sums, const float *terms, int64_t rows, int64_t count, int64_t cols, int add) {
	if (cols == 0) return;
	exact_args a = {rm_op_kernels_at(rm_pool_level(p)), sums, terms, count, cols, (cols + BLOCK - 1) / BLOCK, add};
	rm_pool_for(p, rows * a.blocks, 1, exact_task, &a);
}

typedef struct {
	const rm_op_kernels *k;
	float *out;
	const int64_t *sums;
	int64_t n;
} round_args;

static void round_task(void *arg, int64_t begin, int64_t end, int worker) {
	const round_args *a = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) a->k->round_sums(a->out + i * BLOCK, a->sums + i * BLOCK, block_length(a->n, i));
}

void rm_op_round_sums(rm_pool *p, float *out, const int64_t *sums, int64_t n) {
	round_args a = {rm_op_kernels_at(rm_pool_level(p)), out, sums, n};
	rm_pool_for(p, (n + BLOCK - 1) / BLOCK, 1, round_task, &a);
}
