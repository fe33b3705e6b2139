// Writing the caches: the ring of raw KV rows and the compressor.
#include "ops.h"
#include "ops_kernels.h"
#include "simd.h"

#include <math.h>

typedef struct {
	const rm_op_kernels *k;
	uint16_t *ring;
	const float *x;
	int64_t cols, pos, ring_rows;
} store_args;

static void store_task(void *arg, int64_t begin, int64_t end, int worker) {
	const store_args *a = arg;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		a->k->to_float16(a->ring + (a->pos + t) % a->ring_rows * a->cols, a->x + t * a->cols, a->cols);
	}
}

void rm_op_store_kv(rm_pool *p, uint16_t *ring, const float *x, int64_t rows, int64_t cols, int64_t pos,
                    int64_t ring_rows) {
	store_args a = {rm_op_kernels_at(rm_pool_level(p)), ring, x, cols, pos, ring_rows};
	rm_pool_for(p, rows, rm_grain(cols), store_task, &a);
}

typedef struct {
	const rm_op_kernels *k;
	rm_pool *pool;
	rm_compress a;
	int64_t width; // of the projections
	int64_t first; // the first entry that the call completes
} compress_args;

static void project_task(void *arg, int64_t begin, int64_t end, int worker) {
	const compress_args *c = arg;
	const rm_compress *a = &c->a;
	(void)worker;
	for (int64_t t = begin; t < end; t++) {
		int64_t p = a->pos + t, slot = p % a->ring_rows * c->width;
		memcpy(a->ring_kv + slot, a->kv + t * c->width, (size_t)c->width * sizeof(float));
		if (!a->ape.data) {
			memcpy(a->ring_score + slot, a->score + t * c->width, (size_t)c->width * sizeof(float));
			continue;
		}
		c->k->add_typed(a->ring_score + slot, a->score + t * c->width, a->ape.data + p % a->ratio * a->ape.row_bytes,
		                c->width, a->ape.type);
	}
}

// A worker's memory: the addresses of the candidates, an entry, its angles.
static size_t compress_scratch(const rm_compress *a) {
	return (size_t)(4 * a->ratio) * sizeof(float *) + (size_t)(a->dim + a->rot_dim) * sizeof(float);
}

// candidates lists the rows of a block, starting at channel `channel`.
static int64_t candidates(const compress_args *c, const float **kv, const float **score, int64_t block, int64_t channel) {
	const rm_compress *a = &c->a;
	for (int64_t i = 0; i < a->ratio; i++) {
		int64_t at = (block * a->ratio + i) % a->ring_rows * c->width + channel;
		kv[i] = a->ring_kv + at;
		score[i] = a->ring_score + at;
	}
	return a->ratio;
}

static void entry_task(void *arg, int64_t begin, int64_t end, int worker) {
	const compress_args *c = arg;
	const rm_compress *a = &c->a;
	const float **kv = rm_pool_scratch(c->pool, worker, compress_scratch(a));
	const float **score = kv + 2 * a->ratio;
	float *entry = (float *)(void *)(score + 2 * a->ratio);
	float *cosine = entry + a->dim, *sine = cosine + a->rot_dim / 2;
	for (int64_t i = begin; i < end; i++) {
		int64_t block = c->first + i, n = 0;
		if (a->overlap && block > 0) n = candidates(c, kv, score, block - 1, 0);
		n += candidates(c, kv + n, score + n, block, a->overlap ? a->dim : 0);
		c->k->pool_channels(entry, kv, score, n, a->dim);
		float mean = c->k->sum_squares(entry, a->dim) / (float)a->dim;
		float *to = a->latent ? a->latent + i * a->dim : entry;
		c->k->scale(to, entry, a->norm, 1.0f / sqrtf(mean + a->eps), a->dim);
		if (a->latent) continue;
		rm_rope_angles(cosine, sine, (int32_t)(block * a->ratio), a->freqs, a->rot_dim, 1.0f);
		rm_rope_turn(entry + a->dim - a->rot_dim, cosine, sine, a->rot_dim, 0, 0);
		if (a->hadamard) c->k->hadamard(entry, a->dim);
		c->k->to_float16(a->cache + block * a->dim, entry, a->dim);
	}
}

int rm_op_compress(rm_pool *p, rm_compress a) {
	compress_args c = {.k = rm_op_kernels_at(rm_pool_level(p)), .pool = p, .a = a};
	c.width = a.overlap ? 2 * a.dim : a.dim;
	c.first = a.pos / a.ratio;
	int64_t count = (a.pos + a.rows) / a.ratio - c.first;
	if (rm_pool_reserve(p, compress_scratch(&a)) != RM_OK) return RM_E_MEMORY;
	// All rows first: the entries read them.
	rm_pool_for(p, a.rows, rm_grain(2 * c.width), project_task, &c);
	rm_pool_for(p, count, rm_grain(4 * a.ratio * c.width), entry_task, &c);
	return RM_OK;
}
