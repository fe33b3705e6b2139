// GEMM and GEMV driver: quantises the activations once, divides the weights
// into row tiles and runs the tiles of all products in one loop.
#include "matmul.h"

int rm_uses_act(int32_t type) { return rm_kernels_portable.tile[type] != NULL; }

size_t rm_tile_scratch(int64_t cols) {
	// Sets of 16 unpacked rows: as many as fit, at least one, at most a tile.
	size_t panel = (size_t)(rm_act_padded(cols) / 32) * RM_PANEL_GROUP, panels = RM_TILE_ROWS / 16 * panel;
	if (panels > RM_PANELS_BYTES) panels = panel > RM_PANELS_BYTES ? panel : RM_PANELS_BYTES;
	size_t dense = 4 * sizeof(float) * (size_t)cols; // four widened rows; more take no more than the panels (dense_rows)
	return (panels > dense ? panels : dense) + 64;
}

// ---- activations -----------------------------------------------------------

typedef struct {
	const rm_kernels *k;
	const float *x;
	uint8_t *acts;
	int64_t cols, stride;
	const int32_t *pick;
} quantise_arg;

static void quantise_task(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	const quantise_arg *a = arg;
	for (int64_t i = begin; i < end; i++) {
		int64_t row = a->pick ? a->pick[i] : i;
		a->k->quantise(a->x + row * a->cols, a->cols, a->acts + i * a->stride, a->k->upper_only);
	}
}

void rm_quantise_rows(rm_pool *p, const float *x, int64_t n, int64_t cols, const int32_t *pick, uint8_t *acts) {
	quantise_arg a = {rm_kernels_of(p), x, acts, cols, rm_act_bytes(cols), pick};
	// A chunk of some thousand values is worth waking a thread.
	int64_t grain = 4096 / cols;
	rm_pool_for(p, n, grain, quantise_task, &a);
}

// rm_quantise_batches: a task covers some batches.
typedef struct {
	rm_pool *pool;
	const rm_kernels *k;
	rm_layout layout;
	const float *x;
	uint8_t *batches;
	int64_t n, cols, stride;
} batches_arg;

static void batches_task(void *arg, int64_t begin, int64_t end, int worker) {
	const batches_arg *a = arg;
	int64_t act = rm_act_bytes(a->cols);
	uint8_t *mem = rm_pool_scratch(a->pool, worker, (size_t)(RM_BATCH * act));
	const void *rows[RM_BATCH];
	for (int64_t b = begin; b < end; b++) {
		int64_t first = RM_BATCH * b, n = a->n - first < RM_BATCH ? a->n - first : RM_BATCH;
		for (int64_t i = 0; i < n; i++) {
			rows[i] = mem + i * act;
			a->k->quantise(a->x + (first + i) * a->stride, a->cols, mem + i * act, a->k->upper_only);
		}
		rm_gather(a->k, a->layout, rows, n, a->cols, a->batches + b * rm_batch_bytes(a->cols));
	}
}

int rm_quantise_batches(rm_pool *p, rm_layout layout, const float *x, int64_t n, int64_t cols, int64_t stride, uint8_t *batches) {
	if (rm_pool_reserve(p, (size_t)(RM_BATCH * rm_act_bytes(cols))) != RM_OK) return RM_E_MEMORY;
	batches_arg a = {p, rm_kernels_of(p), layout, x, batches, n, cols, stride};
	rm_pool_for(p, rm_batches(n), 1, batches_task, &a);
	return RM_OK;
}

// ---- tiles -----------------------------------------------------------------

void rm_split(rm_pool *p, int64_t total_rows, int64_t least_rows, int64_t most_rows, int64_t nx, int64_t *tile_rows,
              int64_t *parts) {
	int64_t threads = rm_pool_size(p), rows = most_rows;
	if (threads > 1) {
		while (rows > least_rows && total_rows / rows < 6 * threads) rows /= 2;
	}
	*tile_rows = rows;
	*parts = 1;
	int64_t tiles = (total_rows + rows - 1) / rows;
	if (threads > 1 && tiles < 2 * threads) {
		int64_t want = (4 * threads + tiles - 1) / tiles, most = nx / 16;
		*parts = want < most ? want : most > 0 ? most : 1;
	}
}

// job is one matrix and the activation rows that it is multiplied by.
typedef struct {
	rm_weight w; // its data begin with this job's matrix
	const void *const *x;
	rm_layout layout;
	const uint8_t *batches; // of all rows of x, unless by rows
	const float *scale;     // of the matrix, or NULL
	float *const *out;
	int64_t off;   // first column of the output
	int64_t tiles; // number of row tiles
} job;

typedef struct {
	rm_pool *pool;
	const rm_kernels *k;
	const job *jobs;
	int64_t count, nx, tile_rows, parts;
	int64_t align; // the rows of x are cut at multiples of this
	rm_row_sums sums;
} run_arg;

// cut is where part number `part` of the nx rows begins.
static int64_t cut(const run_arg *a, int64_t part) {
	return part == a->parts ? a->nx : a->nx * part / a->parts / a->align * a->align;
}

// job_of is the job of a tile; tile becomes its number within it.
static const job *job_of(const run_arg *a, int64_t *tile) {
	const job *j = a->jobs;
	for (; j < a->jobs + a->count && *tile >= j->tiles; j++) *tile -= j->tiles;
	return j;
}

// next_tile is the data of the tile that a worker which has tile number `tile` of job j
// will probably take next, if its rows are like these, else NULL.
static const uint8_t *next_tile(const run_arg *a, const job *j, int64_t tile) {
	const job *last = a->jobs + a->count;
	int64_t row_bytes = j->w.row_bytes;
	for (tile += rm_pool_size(a->pool); j < last && tile >= j->tiles; j++) tile -= j->tiles;
	return j < last && j->w.row_bytes == row_bytes ? j->w.data + tile * a->tile_rows * row_bytes : NULL;
}

static void run_task(void *arg, int64_t begin, int64_t end, int worker) {
	const run_arg *a = arg;
	for (int64_t item = begin; item < end; item++) {
		int64_t tile = item / a->parts, part = item % a->parts;
		const job *j = job_of(a, &tile);
		int64_t r = tile * a->tile_rows, x0 = cut(a, part), x1 = cut(a, part + 1);
		if (x0 == x1) continue;
		rm_tile t = {
		    .type = j->w.type,
		    .w = j->w.data + r * j->w.row_bytes,
		    .row_bytes = j->w.row_bytes,
		    .cols = j->w.cols,
		    .nrows = j->w.rows - r < a->tile_rows ? j->w.rows - r : a->tile_rows,
		    .next = next_tile(a, j, tile),
		    .x = j->x + x0,
		    .nx = x1 - x0,
		    .layout = j->layout,
		    .upper_only = a->k->upper_only,
		    .batches = j->batches ? j->batches + x0 / RM_BATCH * rm_batch_bytes(j->w.cols) : NULL,
		    .out = j->out + x0,
		    .off = j->off + r,
		    .sums = a->sums,
		    .scale = j->scale,
		    .scratch = rm_pool_scratch(a->pool, worker, rm_tile_scratch(j->w.cols)),
		};
		rm_tile_run(a->k, &t);
	}
}

// entry is one matrix of a weight. Token t multiplies it with row t*step + column
// of x [tokens*step][cols] and writes to out + t*out_stride + off.
typedef struct {
	const rm_weight *w;
	float *out;
	int64_t out_stride, off;
	int64_t slice;
	int64_t column;
} entry;

// run_entries computes some matrices. All of their rows give `sums`.
static int run_entries(rm_pool *p, const float *x, int64_t rows, int64_t step, int64_t cols, const entry *e,
                       int64_t count, rm_row_sums sums) {
	const rm_kernels *k = rm_kernels_of(p);
	int64_t nx = rows * step, stride = rm_act_bytes(cols), total = 0, least = 16;
	rm_set set = {0};
	int floats = 0;
	for (int64_t i = 0; i < count; i++) {
		rm_set_add(&set, k, e[i].w->type, e[i].w->rows, cols, sums.count > 0);
		if (!rm_uses_act(e[i].w->type)) floats = 1;
		total += e[i].w->rows;
	}
	int acts = set.quantised;
	rm_layout layout = rm_layout_for(k, &set, rows);
	if (floats && layout == RM_BY_ROWS) least = 4;
	// Quantised rows, [nx] or in batches by column; per column: [rows] pointers
	// to them and to the float rows; per entry: [rows] outputs; [count] jobs.
	int64_t column_bytes = rm_batches(rows) * rm_batch_bytes(cols);
	size_t quantised_bytes = !acts ? 0 : layout ? (size_t)(step * column_bytes) : (size_t)(nx * stride);
	size_t bytes = quantised_bytes + (size_t)((acts + floats) * nx + count * rows) * sizeof(void *) +
	               (size_t)count * sizeof(job) + 64;
	uint8_t *mem = rm_pool_shared(p, bytes);
	if (!mem || rm_pool_reserve(p, rm_tile_scratch(cols)) != RM_OK) return RM_E_MEMORY;
	uint8_t *quantised = mem;
	mem += quantised_bytes;
	const void **act_rows = (const void **)(void *)mem;
	if (acts) mem += (size_t)nx * sizeof(void *);
	const void **float_rows = (const void **)(void *)mem;
	if (floats) mem += (size_t)nx * sizeof(void *);
	float **outs = (float **)(void *)mem;
	job *jobs = (job *)(void *)(outs + count * rows);
	for (int64_t c = 0; c < step; c++) {
		for (int64_t t = 0; t < rows; t++) {
			int64_t row = t * step + c;
			if (acts) act_rows[c * rows + t] = quantised + row * stride;
			if (floats) float_rows[c * rows + t] = x + row * cols;
		}
	}
	run_arg a = {p, k, jobs, count, rows, 0, 0, layout ? RM_BATCH : 1, sums};
	int64_t most = rm_long_tile(k, layout, rows, e[0].w->row_bytes);
	rm_split(p, total, least, most, rows, &a.tile_rows, &a.parts);
	int64_t tiles = 0;
	for (int64_t i = 0; i < count; i++) {
		job *j = &jobs[i];
		j->w = *e[i].w;
		j->w.data += e[i].slice * e[i].w->slice_bytes;
		j->scale = rm_scale_of(e[i].w, e[i].slice);
		int quantised_type = rm_uses_act(j->w.type);
		j->x = (const void *const *)(quantised_type ? act_rows : float_rows) + e[i].column * rows;
		j->layout = quantised_type ? layout : RM_BY_ROWS;
		j->batches = j->layout ? quantised + e[i].column * column_bytes : NULL;
		for (int64_t t = 0; t < rows; t++) outs[i * rows + t] = e[i].out + t * e[i].out_stride;
		j->out = outs + i * rows;
		j->off = e[i].off;
		j->tiles = (j->w.rows + a.tile_rows - 1) / a.tile_rows;
		tiles += j->tiles;
	}
	if (layout) {
		for (int64_t c = 0; c < step; c++) {
			uint8_t *batches = quantised + c * column_bytes;
			if (rm_quantise_batches(p, layout, x + c * cols, rows, cols, step * cols, batches) != RM_OK) return RM_E_MEMORY;
		}
	} else if (acts) {
		rm_quantise_rows(p, x, nx, cols, NULL, quantised);
	}
	rm_pool_for(p, tiles * a.parts, 1, run_task, &a);
	return RM_OK;
}

#define ENTRIES 16

int rm_matmul(rm_pool *p, const float *x, int64_t rows, int64_t cols, const rm_product *products, int64_t count) {
	// Beyond ENTRIES the activations are quantised a second time: no model has
	// so many.
	for (int64_t first = 0; first < count && rows > 0; first += ENTRIES) {
		entry e[ENTRIES];
		int64_t n = count - first < ENTRIES ? count - first : ENTRIES;
		for (int64_t i = 0; i < n; i++) {
			const rm_product *q = &products[first + i];
			e[i] = (entry){&q->w, q->out, q->w.rows, 0, 0, 0};
		}
		int code = run_entries(p, x, rows, 1, cols, e, n, (rm_row_sums){0});
		if (code != RM_OK) return code;
	}
	return RM_OK;
}

// join makes the matrices of a stack that are columns of the same rows into one with rows of
// several sums, so that these rows are read once and in their order. With batches of
// activations only narrow matrices are joined, into some of up to 256 columns.
static rm_row_sums join(rm_pool *p, rm_weight *w, int64_t rows) {
	rm_row_sums none = {0}, sums = {.each = w->cols < 256 ? (int)w->cols / 32 : 0, .apart = w->rows};
	int narrow = w->cols == 32 || w->cols == 64 || w->cols == 128;
	if (w->slices == 1 || !rm_uses_act(w->type) || (!narrow && w->cols % 256 != 0)) return none;
	if (w->slice_bytes != w->cols / rm_block_elements(w->type) * rm_block_bytes(w->type) || w->slices * w->slice_bytes > w->row_bytes) return none;
	rm_set set = {0};
	rm_set_add(&set, rm_kernels_of(p), w->type, w->rows, w->slices * w->cols, 1);
	int64_t n = w->slices;
	if (rm_layout_for(rm_kernels_of(p), &set, rows) == RM_BY_ROWS) {
		sums.supers = narrow ? 1 : w->cols / 256;
	} else {
		if (!narrow) return none;
		for (n = 256 / w->cols; w->slices % n != 0;) n--;
	}
	sums.count = n;
	w->cols *= n;
	w->slice_bytes *= n;
	w->slices /= n;
	return sums;
}

int rm_matmul_grouped(rm_pool *p, float *out, const float *x, int64_t rows, const rm_weight *stack) {
	if (rows <= 0) return RM_OK;
	rm_weight all = *stack, *w = &all;
	rm_row_sums sums = join(p, w, rows);
	int64_t groups = w->slices, stride = stack->slices * w->rows;
	entry few[ENTRIES] = {{0}};
	entry *e = few;
	if (groups > ENTRIES) {
		e = rm_alloc((size_t)groups * sizeof *e);
		if (!e) return RM_E_MEMORY;
	}
	for (int64_t g = 0; g < groups; g++) e[g] = (entry){w, out, stride, stride / groups * g, g, g};
	int code = run_entries(p, x, rows, groups, w->cols, e, groups, sums);
	if (groups > ENTRIES) rm_free(e, (size_t)groups * sizeof *e);
	return code;
}

// ---- embedding -------------------------------------------------------------

typedef struct {
	const rm_kernels *k;
	const rm_weight *w;
	const int32_t *ids;
	float *out;
} embed_arg;

static void embed_task(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	const embed_arg *a = arg;
	for (int64_t t = begin; t < end; t++) {
		a->k->widen(a->w->type, a->w->data + a->ids[t] * a->w->row_bytes, a->out + t * a->w->cols, a->w->cols);
	}
}

void rm_embed(rm_pool *p, float *out, const rm_weight *w, const int32_t *ids, int64_t n) {
	embed_arg a = {rm_kernels_of(p), w, ids, out};
	rm_pool_for(p, n, 8, embed_task, &a);
}
