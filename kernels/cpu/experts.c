// The routed experts: gate and up with SwiGLU, and down. The slots of an expert
// are its rows; experts without slots and slots of weight zero read no weights.
// A work item is one expert and some row tiles.
#include "matmul.h"

// TOKENS is the number of slots that an item processes at once, which bounds
// its scratch.
#define TOKENS 128

// active is an expert with slots to compute: live[begin..end).
typedef struct {
	int32_t expert, begin, end;
} active;

// plan is the common input of both halves: the slots with a weight other than zero.
typedef struct {
	active *experts; // [count]
	int32_t *live;   // [slots] slot numbers by expert
	int64_t count, slots;
} plan;

static size_t plan_bytes(const rm_experts *e) {
	int64_t slots = e->offsets[e->experts];
	int64_t most = slots < e->experts ? slots : e->experts;
	return ((size_t)most * sizeof(active) + (size_t)slots * sizeof(int32_t) + 63) / 64 * 64;
}

// make_plan fills mem (plan_bytes). If mid is given it is an output: slots of
// remote experts are then skipped too, and the rows [cols] of mid of all
// skipped slots are cleared.
static plan make_plan(const rm_experts *e, uint8_t *mem, float *mid, int64_t cols) {
	int64_t slots = e->offsets[e->experts];
	int64_t most = slots < e->experts ? slots : e->experts;
	plan p = {(active *)(void *)mem, (int32_t *)(void *)(mem + (size_t)most * sizeof(active)), 0, 0};
	for (int64_t x = 0; x < e->experts; x++) {
		int32_t begin = (int32_t)p.slots;
		int local = !mid || (x >= e->start && x < e->end);
		for (int32_t i = e->offsets[x]; i < e->offsets[x + 1]; i++) {
			int32_t slot = e->slots[i];
			if (local && e->weights[slot] != 0) { // true for NaN too
				p.live[p.slots++] = slot;
			} else if (mid) {
				memset(mid + slot * cols, 0, (size_t)cols * sizeof(float));
			}
		}
		if (p.slots > begin) p.experts[p.count++] = (active){(int32_t)x, begin, (int32_t)p.slots};
	}
	return p;
}

typedef struct {
	rm_pool *pool;
	const rm_kernels *k;
	const rm_experts *e;
	const plan *plan;
	const rm_weight *a, *b;     // gate and up, or down and NULL
	rm_set set;
	const void *const *act_rows; // [slots] by place in live
	const void *const *float_rows;
	float *const *outs; // [slots], down
	float *mid;
	float clamp;
	int64_t tile_rows, item_rows; // of a tile, of an item (whole tiles)
	int64_t items;                // of one expert
} expert_arg;

// next_of is the data of the tile that a worker which has rows r.. of an expert's matrix
// will probably take next, or NULL.
static const uint8_t *next_of(const expert_arg *a, const rm_weight *w, const active *x, int64_t r) {
	int64_t tiles = (w->rows + a->tile_rows - 1) / a->tile_rows, tile = r / a->tile_rows + rm_pool_size(a->pool);
	int64_t next = x - a->plan->experts + tile / tiles;
	if (next >= a->plan->count) return NULL;
	return w->data + a->plan->experts[next].expert * w->slice_bytes + tile % tiles * a->tile_rows * w->row_bytes;
}

// tile_of is the tile of rows r.. of one expert's matrix and the n live slots
// from s on; in a batch layout `batches` holds those slots.
static rm_tile tile_of(const expert_arg *a, const rm_weight *w, const active *x, int64_t r, int64_t s, int64_t n,
                       rm_layout layout, const uint8_t *batches) {
	int quantised = rm_uses_act(w->type);
	return (rm_tile){
	    .type = w->type,
	    .w = w->data + x->expert * w->slice_bytes + r * w->row_bytes,
	    .row_bytes = w->row_bytes,
	    .cols = w->cols,
	    .nrows = w->rows - r < a->tile_rows ? w->rows - r : a->tile_rows,
	    .next = next_of(a, w, x, r),
	    .x = (quantised ? a->act_rows : a->float_rows) + s,
	    .nx = n,
	    .layout = quantised ? layout : RM_BY_ROWS,
	    .upper_only = a->k->upper_only,
	    .batches = quantised && layout ? batches : NULL,
	    .scale = rm_scale_of(w, x->expert),
	};
}

// batches_bytes is the scratch for TOKENS gathered slots.
static size_t batches_bytes(const rm_kernels *k, int64_t cols) {
	return k->gather ? (size_t)(TOKENS / RM_BATCH * rm_batch_bytes(cols)) : 0;
}

// gather_slots gathers n <= TOKENS slots into mem for all row tiles of an item,
// unless the kernels take the rows as they are. It returns the layout.
static rm_layout gather_slots(const expert_arg *a, int64_t s, int64_t n, uint8_t *mem) {
	int64_t cols = a->a->cols;
	rm_layout layout = rm_layout_for(a->k, &a->set, n);
	for (int64_t i = 0; layout && i < n; i += RM_BATCH) {
		rm_gather(a->k, layout, a->act_rows + s + i, n - i < RM_BATCH ? n - i : RM_BATCH, cols,
		          mem + i / RM_BATCH * rm_batch_bytes(cols));
	}
	return layout;
}

static size_t gate_up_scratch(const rm_kernels *k, int64_t cols) {
	return batches_bytes(k, cols) + rm_tile_scratch(cols) + 2 * TOKENS * (RM_TILE_ROWS * sizeof(float) + sizeof(float *)) + 64;
}

static void gate_up_task(void *arg, int64_t begin, int64_t end, int worker) {
	const expert_arg *a = arg;
	int64_t cols = a->a->cols, width = a->a->rows;
	uint8_t *mem = rm_pool_scratch(a->pool, worker, gate_up_scratch(a->k, cols));
	// batches; g and u [TOKENS][RM_TILE_ROWS], and pointers to their rows
	float *g = (float *)(void *)(mem + batches_bytes(a->k, cols)), *u = g + TOKENS * RM_TILE_ROWS;
	float **grows = (float **)(void *)(u + TOKENS * RM_TILE_ROWS), **urows = grows + TOKENS;
	uint8_t *scratch = (uint8_t *)(void *)(urows + TOKENS);
	for (int64_t i = 0; i < TOKENS; i++) {
		grows[i] = g + i * RM_TILE_ROWS;
		urows[i] = u + i * RM_TILE_ROWS;
	}
	for (int64_t item = begin; item < end; item++) {
		const active *x = &a->plan->experts[item / a->items];
		int64_t first = item % a->items * a->item_rows, last = first + a->item_rows < width ? first + a->item_rows : width;
		for (int64_t s = x->begin; s < x->end; s += TOKENS) {
			int64_t n = x->end - s < TOKENS ? x->end - s : TOKENS;
			rm_layout layout = gather_slots(a, s, n, mem);
			for (int64_t r = first; r < last; r += a->tile_rows) {
				rm_tile gate = tile_of(a, a->a, x, r, s, n, layout, mem), up = tile_of(a, a->b, x, r, s, n, layout, mem);
				gate.scratch = up.scratch = scratch;
				gate.out = grows;
				up.out = urows;
				rm_tile_run(a->k, &gate);
				rm_tile_run(a->k, &up);
				for (int64_t i = 0; i < n; i++) {
					int32_t slot = a->plan->live[s + i];
					a->k->glu(a->mid + slot * width + r, grows[i], urows[i], gate.nrows, a->e->weights[slot], a->clamp);
				}
			}
		}
	}
}

static size_t down_scratch(const rm_kernels *k, int64_t cols) { return batches_bytes(k, cols) + rm_tile_scratch(cols); }

static void down_task(void *arg, int64_t begin, int64_t end, int worker) {
	const expert_arg *a = arg;
	int64_t cols = a->a->cols, rows = a->a->rows;
	uint8_t *mem = rm_pool_scratch(a->pool, worker, down_scratch(a->k, cols));
	for (int64_t item = begin; item < end; item++) {
		const active *x = &a->plan->experts[item / a->items];
		int64_t first = item % a->items * a->item_rows, last = first + a->item_rows < rows ? first + a->item_rows : rows;
		for (int64_t s = x->begin; s < x->end; s += TOKENS) {
			int64_t n = x->end - s < TOKENS ? x->end - s : TOKENS;
			rm_layout layout = gather_slots(a, s, n, mem);
			for (int64_t r = first; r < last; r += a->tile_rows) {
				rm_tile t = tile_of(a, a->a, x, r, s, n, layout, mem);
				t.scratch = mem + batches_bytes(a->k, cols);
				t.out = a->outs + s;
				t.off = r;
				rm_tile_run(a->k, &t);
			}
		}
	}
}

// run divides the experts' rows into items and runs task over them. Where slots
// are gathered, an item has up to 8 tiles, so that gathering is a small part of
// its work, provided that this leaves enough items for the threads. The sums of gate and
// up are kept by tiles of RM_TILE_ROWS.
static void run(rm_pool *p, expert_arg *a, rm_task task) {
	int64_t parts, least = rm_uses_act(a->a->type) ? 16 : 4, rows = a->a->rows, count = a->plan->count;
	int64_t each = (a->plan->slots + count - 1) / count;
	rm_set_add(&a->set, a->k, a->a->type, rows, a->a->cols, 0);
	if (a->b) rm_set_add(&a->set, a->k, a->b->type, a->b->rows, a->b->cols, 0);
	rm_layout layout = rm_layout_for(a->k, &a->set, each);
	int64_t most = a->b ? RM_TILE_ROWS : rm_long_tile(a->k, layout, each, a->a->row_bytes);
	rm_split(p, rows * count, least, most, 1, &a->tile_rows, &parts);
	a->item_rows = a->tile_rows;
	if (layout) {
		while (a->item_rows < 8 * RM_TILE_ROWS && rows * count / a->item_rows >= 16 * rm_pool_size(p)) a->item_rows *= 2;
	}
	a->items = (rows + a->item_rows - 1) / a->item_rows;
	rm_pool_for(p, a->items * count, 1, task, a);
}

int rm_expert_gate_up(rm_pool *p, float *mid, const float *x, const rm_weight *gate, const rm_weight *up, float clamp,
                      const rm_experts *e) {
	int64_t slots = e->offsets[e->experts], cols = gate->cols, stride = rm_act_bytes(cols);
	int acts = rm_uses_act(gate->type) || rm_uses_act(up->type);
	if (slots == 0) return RM_OK;
	// [rows] quantised; plan; [slots] pointers to quantised and to float rows
	size_t quantised = acts ? (size_t)(e->rows * stride) : 0;
	uint8_t *mem = rm_pool_shared(p, quantised + plan_bytes(e) + 2 * (size_t)slots * sizeof(void *));
	if (!mem || rm_pool_reserve(p, gate_up_scratch(rm_kernels_of(p), cols)) != RM_OK) return RM_E_MEMORY;
	plan plan = make_plan(e, mem + quantised, mid, gate->rows);
	if (plan.count == 0) return RM_OK;
	const void **act_rows = (const void **)(void *)(mem + quantised + plan_bytes(e));
	const void **float_rows = act_rows + slots;
	for (int64_t i = 0; i < plan.slots; i++) {
		int64_t t = plan.live[i] / e->used;
		act_rows[i] = mem + t * stride;
		float_rows[i] = x + t * cols;
	}
	if (acts) rm_quantise_rows(p, x, e->rows, cols, NULL, mem);
	expert_arg a = {
		.pool = p, .k = rm_kernels_of(p), .e = e, .plan = &plan, .a = gate, .b = up,
		.act_rows = act_rows, .float_rows = float_rows, .mid = mid, .clamp = clamp,
	};
	run(p, &a, gate_up_task);
	return RM_OK;
}

typedef struct {
	float *out;
	int64_t cols;
	const uint8_t *live; // [rows*used]
} clear_arg;

static void clear_task(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	const clear_arg *a = arg;
	for (int64_t i = begin; i < end; i++) {
		if (!a->live[i]) memset(a->out + i * a->cols, 0, (size_t)a->cols * sizeof(float));
	}
}

int rm_expert_down(rm_pool *p, float *out, const float *mid, const rm_weight *down, const rm_experts *e) {
	int64_t slots = e->offsets[e->experts], cols = down->cols, stride = rm_act_bytes(cols), all = e->rows * e->used;
	int acts = rm_uses_act(down->type);
	if (all == 0) return RM_OK;
	// [slots] quantised rows of mid; plan; [slots] pointers to them, to the
	// float rows, to the rows of out; [all] flags
	size_t quantised = acts ? (size_t)(slots * stride) : 0;
	uint8_t *mem = rm_pool_shared(p, quantised + plan_bytes(e) + 3 * (size_t)slots * sizeof(void *) + (size_t)all);
	if (!mem || rm_pool_reserve(p, down_scratch(rm_kernels_of(p), cols)) != RM_OK) return RM_E_MEMORY;
	plan plan = make_plan(e, mem + quantised, NULL, 0);
	const void **act_rows = (const void **)(void *)(mem + quantised + plan_bytes(e));
	const void **float_rows = act_rows + slots;
	float **outs = (float **)(void *)(float_rows + slots);
	uint8_t *live = (uint8_t *)(void *)(outs + slots);
	memset(live, 0, (size_t)all);
	for (int64_t i = 0; i < plan.slots; i++) {
		int64_t slot = plan.live[i];
		act_rows[i] = mem + i * stride;
		float_rows[i] = mid + slot * cols;
		outs[i] = out + slot * down->rows;
		live[slot] = 1;
	}
	if (plan.slots < all) {
		clear_arg c = {out, down->rows, live};
		rm_pool_for(p, all, 64, clear_task, &c);
	}
	if (plan.count == 0) return RM_OK;
	if (acts) rm_quantise_rows(p, mid, plan.slots, cols, plan.live, mem);
	expert_arg a = {
		.pool = p, .k = rm_kernels_of(p), .e = e, .plan = &plan, .a = down,
		.act_rows = act_rows, .float_rows = float_rows, .outs = outs,
	};
	run(p, &a, down_task);
	return RM_OK;
}
