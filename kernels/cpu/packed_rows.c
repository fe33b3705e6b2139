// Rows of activations as they travel between ranks: the values n and the scale d of each
// group of 32 (see matmul.h), all scales of a row before its values.
//
// A row that is unpacked, n*d, and quantised again has the same n and d. The largest
// value of a group is quantised to n = 16256 or -16256, and d = a/16256 comes back from
// 16256*d for every float32 a from 2^-110 (TestPackedScales tries all significands), the
// largest values excepted: there the product may overflow, and the largest float32 in its
// place gives the same d. The inverse that is computed from the restored value may differ
// in its last bits, which moves n*d*inverse from n by less than 0.01, far from the 0.5
// that would round to a neighbour. A d of 0 or NaN belongs to values n = 0 and comes back
// from zeros and NaNs.
#include <float.h>
#include <string.h>

#include "matmul.h"

int rm_packs(int32_t type) { return rm_uses_act(type); }

static int64_t packed_bytes(int64_t cols) { return cols / 32 * 68; }

typedef struct {
	rm_pool *pool;
	const float *x; // [rows][cols]
	uint8_t *packed;
	int64_t cols;
} pack_arg;

static void pack_task(void *arg, int64_t begin, int64_t end, int worker) {
	const pack_arg *a = arg;
	const rm_kernels *k = rm_kernels_of(a->pool);
	int64_t cols = a->cols, groups = cols / 32;
	void *mem = rm_pool_scratch(a->pool, worker, (size_t)rm_act_bytes(cols));
	rm_act act = rm_act_at(mem, cols);
	for (int64_t i = begin; i < end; i++) {
		k->quantise(a->x + i * cols, cols, mem, k->upper_only);
		uint8_t *row = a->packed + i * packed_bytes(cols);
		memcpy(row, act.d, (size_t)groups * sizeof(float));
		int16_t *n = (int16_t *)(void *)(row + groups * 4);
		for (int64_t c = 0; c < cols; c++) n[c] = (int16_t)(128 * act.q[c] + act.r[c]);
	}
}

int rm_pack_rows(rm_pool *p, uint8_t *packed, const float *x, int64_t rows, int64_t cols) {
	if (rm_pool_reserve(p, (size_t)rm_act_bytes(cols)) != RM_OK) return RM_E_MEMORY;
	pack_arg a = {p, x, packed, cols};
	rm_pool_for(p, rows, 4096 / cols, pack_task, &a);
	return RM_OK;
}

typedef struct {
	float *out; // [rows][cols]
	const uint8_t *packed;
	int64_t cols;
} unpack_arg;

static void unpack_task(void *arg, int64_t begin, int64_t end, int worker) {
	(void)worker;
	const unpack_arg *a = arg;
	int64_t cols = a->cols, groups = cols / 32;
	for (int64_t i = begin; i < end; i++) {
		const float *d = (const float *)(const void *)(a->packed + i * packed_bytes(cols));
		const int16_t *n = (const int16_t *)(const void *)(d + groups);
		float *out = a->out + i * cols;
		for (int64_t g = 0; g < groups; g++) {
			for (int64_t c = 32 * g; c < 32 * g + 32; c++) {
				float v = d[g] * (float)n[c];
				v = v > FLT_MAX ? FLT_MAX : v;
				out[c] = v < -FLT_MAX ? -FLT_MAX : v; // a NaN stays
			}
		}
	}
}

void rm_unpack_rows(rm_pool *p, float *out, const uint8_t *packed, int64_t rows, int64_t cols) {
	unpack_arg a = {out, packed, cols};
	rm_pool_for(p, rows, 4096 / cols, unpack_task, &a);
}
