// Hyper-connections (mHC): mixing coefficients of the residual streams, collapse
// and expand.
#include "ops.h"
#include "ops_kernels.h"
#include "simd.h"

#include <math.h>

typedef struct {
	float *h;
	const float *x;
	int64_t streams, cols;
} init_args;

static void init_task(void *arg, int64_t begin, int64_t end, int worker) {
	const init_args *a = arg;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		for (int64_t s = 0; s < a->streams; s++) {
			memcpy(a->h + (t * a->streams + s) * a->cols, a->x + t * a->cols, (size_t)a->cols * sizeof(float));
		}
	}
}

void rm_op_hc_init(rm_pool *p, float *h, const float *x, int64_t rows, int64_t streams, int64_t cols) {
	init_args a = {h, x, streams, cols};
	rm_pool_for(p, rows, rm_grain(streams * cols / 4), init_task, &a);
}

// Products of the flattened streams with the rows of Fn, and their sums of
// squares. Items are ROW_BLOCK tokens times K_BLOCK rows; the last item of a
// block of tokens computes their sums of squares.
#define ROW_BLOCK 8
#define K_BLOCK 4
// From this many tokens on, a 16-bit Fn is converted to float32 once.
#define WIDEN_ROWS 16

typedef struct {
	const rm_op_kernels *k;
	const float *h;    // [rows][n]
	const uint8_t *fn; // [count] rows of `type`
	int64_t row_bytes;
	int32_t type;
	rm_weight source; // where fn comes from, when it has to be converted
	float *widened;   // [count][n]
	float *products;  // [rows][count]
	float *squares;   // [rows]
	int64_t rows, n, count;
} product_args;

static void widen_task(void *arg, int64_t begin, int64_t end, int worker) {
	const product_args *a = arg;
	(void)worker;
	for (int64_t k = begin; k < end; k++) {
		rm_dequant_row(a->source.type, a->source.data + k * a->source.row_bytes, a->widened + k * a->n, a->n);
	}
}

static void product_task(void *arg, int64_t begin, int64_t end, int worker) {
	const product_args *a = arg;
	int64_t parts = (a->count + K_BLOCK - 1) / K_BLOCK + 1;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / parts * ROW_BLOCK, k = i % parts * K_BLOCK;
		int64_t rows = a->rows - t < ROW_BLOCK ? a->rows - t : ROW_BLOCK;
		const float *h = a->h + t * a->n;
		if (k >= a->count) {
			for (int64_t r = 0; r < rows; r++) a->squares[t + r] = a->k->sum_squares(h + r * a->n, a->n);
			continue;
		}
		int64_t count = a->count - k < K_BLOCK ? a->count - k : K_BLOCK;
		a->k->dots(a->products + t * a->count + k, a->count, h, a->n, rows, a->fn + k * a->row_bytes, a->row_bytes,
		           count, a->n, a->type);
	}
}

// products fills a->products and a->squares, in memory shared by the pool.
static int products(rm_pool *p, product_args *a, const float *h, const rm_weight *fn, int64_t rows) {
	int direct = fn->type == RM_TYPE_F32 ||
	             ((fn->type == RM_TYPE_F16 || fn->type == RM_TYPE_BF16) && rows < WIDEN_ROWS);
	size_t results = (size_t)(rows * (fn->rows + 1)), wide = direct ? 0 : (size_t)(fn->rows * fn->cols);
	float *mem = rm_pool_shared(p, (results + wide) * sizeof(float));
	if (!mem) return RM_E_MEMORY;
	*a = (product_args){
		.k = rm_op_kernels_at(rm_pool_level(p)),
		.h = h,
		.fn = fn->data,
		.row_bytes = fn->row_bytes,
		.type = fn->type,
		.source = *fn,
		.widened = mem + results,
		.products = mem,
		.squares = mem + rows * fn->rows,
		.rows = rows,
		.n = fn->cols,
		.count = fn->rows,
	};
	if (!direct) {
		rm_pool_for(p, a->count, 1, widen_task, a);
		a->fn = (const uint8_t *)a->widened;
		a->row_bytes = a->n * (int64_t)sizeof(float);
		a->type = RM_TYPE_F32;
	}
	int64_t parts = (a->count + K_BLOCK - 1) / K_BLOCK + 1;
	int64_t items = (rows + ROW_BLOCK - 1) / ROW_BLOCK * parts;
	rm_pool_for(p, items, rm_grain(a->n * K_BLOCK), product_task, a);
	return RM_OK;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// sinkhorn: see kernels.HCMixArgs. c is [s][s].
static inline void sinkhorn(double *c, int64_t s, int64_t iterations, double eps) {
	for (int64_t i = 0; i < s; i++) {
		double max = c[i * s], sum = 0;
		for (int64_t j = 1; j < s; j++) max = c[i * s + j] > max ? c[i * s + j] : max;
		for (int64_t j = 0; j < s; j++) sum += c[i * s + j] = exp(c[i * s + j] - max);
		for (int64_t j = 0; j < s; j++) c[i * s + j] = c[i * s + j] / sum + eps;
	}
	for (int64_t n = 0; n < iterations; n++) {
		for (int64_t i = 0; n > 0 && i < s; i++) { // rows, except the first time
			double sum = 0;
			for (int64_t j = 0; j < s; j++) sum += c[i * s + j];
			double inverse = 1.0 / (sum + eps);
			for (int64_t j = 0; j < s; j++) c[i * s + j] *= inverse;
		}
		for (int64_t j = 0; j < s; j++) {
			double sum = 0;
			for (int64_t i = 0; i < s; i++) sum += c[i * s + j];
			double inverse = 1.0 / (sum + eps);
			for (int64_t i = 0; i < s; i++) c[i * s + j] *= inverse;
		}
	}
}

typedef struct {
	product_args products;
	rm_hc_mix a;
} mix_args;

static void mix_task(void *arg, int64_t begin, int64_t end, int worker) {
	const mix_args *m = arg;
	const rm_hc_mix *a = &m->a;
	int64_t s = a->streams;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		const float *dot = m->products.products + t * m->products.count;
		double mean = (double)m->products.squares[t] / (double)m->products.n;
		double r = 1.0 / sqrt(mean + (double)a->rms_eps);
		for (int64_t i = 0; i < s; i++) {
			double pre = r * dot[i] * a->scale[0] + a->base[i];
			double post = r * dot[s + i] * a->scale[1] + a->base[s + i];
			a->pre[t * s + i] = (float)(sigmoid(pre) + (double)a->eps);
			a->post[t * s + i] = (float)(2.0 * sigmoid(post));
		}
		double c[16 * 16];
		for (int64_t i = 0; i < s * s; i++) c[i] = r * dot[2 * s + i] * a->scale[2] + a->base[2 * s + i];
		if (s == 4) { // every model so far has 4: the loops unroll
			sinkhorn(c, 4, a->iterations, a->eps);
		} else {
			sinkhorn(c, s, a->iterations, a->eps);
		}
		for (int64_t i = 0; i < s * s; i++) a->comb[t * s * s + i] = (float)c[i];
	}
}

int rm_op_hc_mix(rm_pool *p, rm_hc_mix a) {
	if (a.rows == 0) return RM_OK;
	mix_args m = {.a = a};
	int code = products(p, &m.products, a.h, &a.fn, a.rows);
	if (code != RM_OK) return code;
	rm_pool_for(p, a.rows, 8, mix_task, &m);
	return RM_OK;
}

// Collapse and expand work on blocks of channels of one token.
#define CHANNELS 1024

typedef struct {
	const rm_op_kernels *k;
	float *out;
	float *h;
	const float *x, *y, *pre, *post, *comb;
	int64_t streams, cols, blocks;
} stream_args;

static void collapse_task(void *arg, int64_t begin, int64_t end, int worker) {
	const stream_args *a = arg;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / a->blocks, at = i % a->blocks * CHANNELS;
		int64_t n = a->cols - at < CHANNELS ? a->cols - at : CHANNELS;
		a->k->collapse(a->out + t * a->cols + at, a->x + t * a->streams * a->cols + at, a->pre + t * a->streams,
		               a->streams, a->cols, n);
	}
}

void rm_op_hc_collapse(rm_pool *p, float *out, const float *h, const float *pre, int64_t rows, int64_t streams,
                       int64_t cols) {
	stream_args a = {.k = rm_op_kernels_at(rm_pool_level(p)), .out = out, .x = h, .pre = pre, .streams = streams, .cols = cols};
	a.blocks = (cols + CHANNELS - 1) / CHANNELS;
	rm_pool_for(p, rows * a.blocks, rm_grain(streams * CHANNELS), collapse_task, &a);
}

static void expand_task(void *arg, int64_t begin, int64_t end, int worker) {
	const stream_args *a = arg;
	int64_t s = a->streams;
	(void)worker;
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / a->blocks, at = i % a->blocks * CHANNELS;
		int64_t n = a->cols - at < CHANNELS ? a->cols - at : CHANNELS;
		a->k->expand(a->h + t * s * a->cols + at, a->y + t * a->cols + at, a->post + t * s, a->comb + t * s * s, s,
		             a->cols, n);
	}
}

void rm_op_hc_expand(rm_pool *p, float *h, const float *y, const float *post, const float *comb, int64_t rows,
                     int64_t streams, int64_t cols) {
	stream_args a = {.k = rm_op_kernels_at(rm_pool_level(p)), .h = h, .y = y, .post = post, .comb = comb, .streams = streams, .cols = cols};
	a.blocks = (cols + CHANNELS - 1) / CHANNELS;
	rm_pool_for(p, rows * a.blocks, rm_grain(2 * streams * CHANNELS), expand_task, &a);
}

typedef struct {
	const rm_op_kernels *k;
	rm_pool *pool;
	rm_hc_gate a;
} gate_args;

static size_t gate_scratch(const rm_hc_gate *a) { return (size_t)(2 * a->cols) * sizeof(float); }

// gate_task adds the value to one stream of one token per item.
static void gate_task(void *arg, int64_t begin, int64_t end, int worker) {
	const gate_args *g = arg;
	const rm_hc_gate *a = &g->a;
	int64_t n = a->cols;
	float *x = rm_pool_scratch(g->pool, worker, gate_scratch(a)), *y = x + n; // [cols] each
	for (int64_t i = begin; i < end; i++) {
		int64_t t = i / a->streams, s = i % a->streams;
		float *h = a->h + i * n;
		const float *kv = a->kv + t * (a->streams + 1) * n, *key = kv + s * n;
		double mean_h = (double)g->k->sum_squares(h, n) / (double)n;
		double mean_key = (double)g->k->sum_squares(key, n) / (double)n;
		float r_h = (float)(1.0 / sqrt(mean_h + (double)a->eps)), r_key = (float)(1.0 / sqrt(mean_key + (double)a->eps));
		g->k->scale(x, h, a->h_norm + s * n, r_h, n);
		g->k->scale(y, key, a->key_norm + s * n, r_key, n);
		float dot;
		g->k->dots(&dot, 1, x, n, 1, (const uint8_t *)y, n * (int64_t)sizeof(float), 1, n, RM_TYPE_F32);
		double d = (double)dot / sqrt((double)n);
		double size = fabs(d) > 1e-6 ? fabs(d) : 1e-6;
		float gate = (float)sigmoid(copysign(sqrt(size), d)), keep = 1;
		g->k->expand(h, kv + a->streams * n, &gate, &keep, 1, n, n);
	}
}

int rm_op_hc_gate(rm_pool *p, rm_hc_gate a) {
	gate_args g = {rm_op_kernels_at(rm_pool_level(p)), p, a};
	if (rm_pool_reserve(p, gate_scratch(&a)) != RM_OK) return RM_E_MEMORY;
	rm_pool_for(p, a.rows * a.streams, rm_grain(6 * a.cols), gate_task, &g);
	return RM_OK;
}

typedef struct {
	product_args products;
	rm_hc_head a;
} head_args;

static void head_task(void *arg, int64_t begin, int64_t end, int worker) {
	const head_args *m = arg;
	const rm_hc_head *a = &m->a;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		const float *dot = m->products.products + t * a->streams;
		double mean = (double)m->products.squares[t] / (double)m->products.n;
		double r = 1.0 / sqrt(mean + (double)a->rms_eps);
		float w[16];
		for (int64_t s = 0; s < a->streams; s++) {
			w[s] = (float)(sigmoid(r * dot[s] * a->scale[0] + a->base[s]) + (double)a->eps);
		}
		m->products.k->collapse(a->out + t * a->cols, a->h + t * m->products.n, w, a->streams, a->cols, a->cols);
	}
}

int rm_op_hc_head(rm_pool *p, rm_hc_head a) {
	if (a.rows == 0) return RM_OK;
	head_args m = {.a = a};
	int code = products(p, &m.products, a.h, &a.fn, a.rows);
	if (code != RM_OK) return code;
	rm_pool_for(p, a.rows, 1, head_task, &m);
	return RM_OK;
}
