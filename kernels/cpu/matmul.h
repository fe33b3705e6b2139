// GEMM and GEMV: what the drivers (matmul.c, experts.c) and the kernels of the
// levels share.
//
// # Arithmetic
//
// Quantised weights. A row of activations is quantised in groups of 32: one
// float32 scale d = amax/16256 and 15-bit values n = 128*q + r of two bytes
// each (rm_act). One byte is faster, but its rounding is the largest error of
// the whole forward pass: with two, the logits equal those of exact activations
// to about the rounding of the KV cache. A pool of 8-bit activations rounds n to
// a multiple of 128, so that r is zero (upper_only): the arithmetic stays the same,
// and kernels may leave out the products with r. Each group of 32 of
// a weight row gives an exact integer dot product t with the activations
// (sub-block integer scales included; at most 32*4096*16256 < 2^31), a float32
// scale s, and for the types with minima m (the negated minimum: one per group,
// or m0 and m1 for its halves). With lane = group number mod 8, in order of the
// groups:
//
//	acc[lane] = fma(m, b, acc[lane])      b = d * sum of the values n
//	(or         fma(m0, b0, ...), then fma(m1, b1, ...) for the halves)
//	acc[lane] = fma(s*d, (float)t, acc[lane])
//
// and the result is rm_sum8 of acc. Every kernel does exactly this, so a value
// depends neither on the level nor on how many rows or tokens are computed
// together. A row with several sums (rm_row_sums) is like one row for each, padded
// with zeros.
//
// Other weights. Rows are converted to float32 (exactly) and multiplied by the
// float32 activations in 16 lanes, lane = column mod 16, acc = fma(w, x, acc)
// (without fma on the portable level of a processor that lacks it), then
// rm_sum16.
//
// The scale of a matrix (rm_weight) multiplies the result, rounded to float32 on both sides.
#ifndef RM_MATMUL_H
#define RM_MATMUL_H

#include <stddef.h>

#include "cpu.h"
#include "exp.h"
#include "simd.h"
#include "tensor_types.h"

// A row tile: the unit of work and of scratch. GEMV takes up to RM_LONG_TILE rows at once
// (rm_long_tile).
#define RM_TILE_ROWS 64
#define RM_LONG_TILE 1024

// rm_layout is the memory layout of activations: rows (rm_act), batches of
// RM_BATCH rows as rm_kernels.gather writes them, or, for up to RM_FEW_TOKENS,
// as rm_kernels.gather_few writes them.
typedef enum { RM_BY_ROWS = 0, RM_IN_BATCHES, RM_AS_FEW } rm_layout;

// rm_row_sums says which sums rows of quantised weights give; all zero: one of all columns.
typedef struct rm_row_sums {
	int64_t count;  // of a row
	int64_t supers; // blocks of 256 columns after which the lanes are summed, 0 for all columns
	int each;       // lanes of a sum, 1, 2 or 4; 0 for all
	int64_t apart;  // from one sum to the next in the output
} rm_row_sums;

// rm_tile is nrows <= RM_LONG_TILE consecutive weight rows times nx activation
// rows: out[t][off+r] = w[r] · x[t], or with sums out[t][off+r + i*apart] for each sum i.
typedef struct rm_tile {
	int32_t type;
	const uint8_t *w; // [nrows][row_bytes]
	int64_t row_bytes, cols;
	int64_t nrows;
	const uint8_t *next; // the tile that this worker will probably read next, or NULL
	const void *const *x; // [nx] rows: rm_act if rm_uses_act(type), else float [cols]
	int64_t nx;
	rm_layout layout; // layout of the rows of x
	int upper_only;         // r is zero in all rows of x
	const uint8_t *batches; // the rows of x, NULL if the layout is by rows
	float *const *out; // [nx]
	int64_t off;
	rm_row_sums sums;
	const float *scale; // by which the products are multiplied once they are summed, or NULL
	uint8_t *scratch; // rm_tile_scratch bytes, aligned to 64
} rm_tile;

typedef void (*rm_tile_fn)(const rm_tile *);

// rm_lanes_fn computes the rows of a tile up to the last multiple of rm_kernels.lane_rows,
// for any number of tokens, and returns their number.
typedef int64_t (*rm_lanes_fn)(const rm_tile *);

// rm_limits are the numbers of tokens from which kernels are used for a type: choice.c.
typedef struct rm_limits {
	uint8_t lanes, panels;
	uint8_t panels8; // of activations of 8 bits; 0: panels
} rm_limits;

// rm_dense_bytes is the bytes of n weights of F32, F16, BF16 or NVFP4, type constant.
static inline int64_t rm_dense_bytes(int32_t type, int64_t n) {
	if (type == RM_NVFP4) return n / 64 * 36;
	return type == RM_F32 ? 4 * n : 2 * n;
}

// RM_DENSE_ROWS is the most rows that the float32 kernel takes, RM_DENSE_TOKENS the tokens
// whose sums it keeps meanwhile.
#define RM_DENSE_ROWS 16
#define RM_DENSE_TOKENS 16

// rm_dense_fn is the float32 kernel: nr <= RM_DENSE_ROWS rows of cols floats (unaligned),
// out[t][off+r].
typedef void (*rm_dense_fn)(const uint8_t *const *rows, int64_t nr, int64_t cols, const float *const *x, int64_t nx,
                            float *const *out, int64_t off);

// rm_kernels is what a level implements.
typedef struct rm_kernels {
	// upper_only: the activations have 8 bits (rm_pool_set_upper_only).
	int upper_only;
	void (*quantise)(const float *x, int64_t cols, void *act, int upper_only);
	void (*widen)(int32_t type, const uint8_t *src, float *dst, int64_t n); // any type to float32
	void (*narrow)(const float *src, uint16_t *dst, int64_t n);            // float32 to float16
	// glu: mid = weight*silu(g)*u, n elements; clamp > 1e-6 bounds g and u.
	void (*glu)(float *mid, const float *g, const float *u, int64_t n, float weight, float clamp);
	rm_dense_fn dense;
	rm_tile_fn tile[RM_TYPES]; // NULL: widen and dense
	// row computes a tile of few tokens and returns 1 if it has a faster way
	// than tile; may be NULL.
	int (*row)(const rm_tile *);
	// gather interleaves n <= RM_BATCH rows (rm_act) for tiles that process
	// many at once: batch is rm_batch_bytes, aligned to 64. NULL: tiles take x
	// as it is.
	void (*gather)(const void *const *x, int64_t n, int64_t cols, uint8_t *batch);
	// gather_bytes is gather where the activations have 8 bits, NULL: gather is.
	void (*gather_bytes)(const void *const *x, int64_t n, int64_t cols, uint8_t *batch);
	int64_t gather_from; // number of rows from which that pays where limits has none
	// lanes has kernels for a few tokens that compute lane_rows rows of whole
	// super-blocks (256 columns) at once; limits says for how many. NULL: the
	// level has no such kernels.
	const rm_lanes_fn *lanes; // [RM_TYPES]
	int64_t lane_rows;
	const rm_limits *limits; // [RM_TYPES]
	// few returns the kernel for tiles of few tokens with weights of the type,
	// for a matrix of at least 16 rows of whole super-blocks (256 columns), or
	// NULL; gather_few prepares their activations: n <= RM_FEW_TOKENS, as
	// gather. NULL: the level has no such kernels.
	rm_tile_fn (*few)(int32_t type);
	void (*gather_few)(const void *const *x, int64_t n, int64_t cols, uint8_t *batch);
	int64_t few_from; // number of rows from which that pays
} rm_kernels;

#define RM_FEW_TOKENS 8

// RM_BATCH rows of activations form a batch of RM_BATCH_GROUP bytes per group.
#define RM_BATCH 16
#define RM_BATCH_GROUP 1280

// RM_PANEL_GROUP is the most scratch that any level needs for one group of 16
// unpacked weight rows.
#define RM_PANEL_GROUP (1024 + 3 * 64)
// RM_PANELS_BYTES bounds several sets of 16 rows together: half of a common
// second-level cache.
#define RM_PANELS_BYTES (512 << 10)

extern const rm_kernels rm_kernels_portable;
#if RM_X86
extern const rm_kernels rm_kernels_avx2, rm_kernels_avx512, rm_kernels_amx;
// rm_kernels.row of AVX2 and AVX-512
int rm_row256(const rm_tile *t);
int rm_row512(const rm_tile *t);
extern const rm_lanes_fn rm_lanes_avx512[RM_TYPES];
extern const rm_limits rm_limits_avx2[RM_TYPES], rm_limits_avx512[RM_TYPES], rm_limits_amx[RM_TYPES];
// rm_kernels.few and gather_few of AMX
rm_tile_fn rm_amx_few(int32_t type);
void rm_amx_gather_few(const void *const *x, int64_t n, int64_t cols, uint8_t *batch);
#endif

#if RM_NEON
extern const rm_kernels rm_kernels_neon, rm_kernels_neon_i8mm;
#endif

const rm_kernels *rm_kernels_for(int level);
const rm_kernels *rm_kernels_of(const rm_pool *p);

// rm_uses_act says whether weights of the type are multiplied by quantised
// activations.
int rm_uses_act(int32_t type);
// rm_tile_scratch is the scratch size of a tile with rows of cols columns.
size_t rm_tile_scratch(int64_t cols);

// ---- the choice of kernels (choice.c) ----------------------------------------

// rm_set is a set of weights that are multiplied by the same rows of activations.
typedef struct rm_set {
	int quantised;       // one of them is
	int few;	         // all that are have kernels for few tokens
	int64_t panels_from; // number of rows from which batches pay for all
} rm_set;

// rm_set_add adds a weight, with rows of several sums or of one.
void rm_set_add(rm_set *s, const rm_kernels *k, int32_t type, int64_t rows, int64_t cols, int several);
// rm_layout_for chooses the layout of nx rows of quantised activations.
rm_layout rm_layout_for(const rm_kernels *k, const rm_set *s, int64_t nx);
// rm_gather writes a batch of n rows in a layout that has batches.
static inline void rm_gather(const rm_kernels *k, rm_layout layout, const void *const *x, int64_t n, int64_t cols,
                             uint8_t *batch) {
	if (layout == RM_AS_FEW) {
		k->gather_few(x, n, cols, batch);
	} else if (k->upper_only && k->gather_bytes) {
		k->gather_bytes(x, n, cols, batch);
	} else {
		k->gather(x, n, cols, batch);
	}
}
// rm_tile_run computes the tile with the fastest kernel for it.
void rm_tile_run(const rm_kernels *k, const rm_tile *t);

// rm_long_tile is the most rows of a tile for nx tokens: RM_TILE_ROWS, or for GEMV as many
// as let the processor recognise its four streams, which takes some pages of each.
int64_t rm_long_tile(const rm_kernels *k, rm_layout layout, int64_t nx, int64_t row_bytes);

// rm_split chooses the number of rows of a tile (a power of two from least_rows
// to most_rows) for matrices of total_rows in all, and, where that leaves
// threads idle, into how many parts to divide the nx activation rows.
void rm_split(rm_pool *p, int64_t total_rows, int64_t least_rows, int64_t most_rows, int64_t nx, int64_t *tile_rows, int64_t *parts);

// rm_quantise_batches quantises n rows of x, `stride` floats apart, and gathers
// them in batches. RM_E_MEMORY if a worker's scratch cannot be allocated.
int rm_quantise_batches(rm_pool *p, rm_layout layout, const float *x, int64_t n, int64_t cols, int64_t stride, uint8_t *batches);

// rm_quantise_rows quantises n rows of x, row pick[i] (or i) to the i-th rm_act
// of acts.
void rm_quantise_rows(rm_pool *p, const float *x, int64_t n, int64_t cols, const int32_t *pick, uint8_t *acts);

// rm_glu is one element of rm_kernels.glu.
static inline float rm_glu(float g, float u, float weight, float clamp) {
	if (clamp > 1e-6f) {
		g = clamp < g ? clamp : g;
		u = clamp < u ? clamp : u;
		u = -clamp > u ? -clamp : u;
	}
	return weight * (g / (1.0f + rm_expf_inline(-g))) * u;
}

// ---- quantised activations -------------------------------------------------

// rm_act is one row, its columns padded with zeros to a multiple of 256. All
// arrays but q and r have one element per group of 32.
typedef struct rm_act {
	int8_t *q;     // [padded] upper part of n = 128*q + r, in [-127, 127]
	int8_t *r;     // [padded] lower part, in [-64, 63]
	float *d;      // scale
	float *b;      // d * sum of n
	float *b0;     // d * sum of the first 16
	float *b1;     // d * sum of the last 16
	int32_t *z;    // -128 * sum of n
	int32_t *z0;   // -32 * sum of the first 16
	int32_t *z1;   // -32 * sum of the last 16
	int64_t groups; // padded/32
} rm_act;

static inline int64_t rm_act_padded(int64_t cols) { return (cols + 255) / 256 * 256; }

// rm_act_bytes is the size of a row, a multiple of 64.
static inline int64_t rm_act_bytes(int64_t cols) {
	int64_t padded = rm_act_padded(cols);
	return (2 * padded + padded / 32 * 28 + 63) / 64 * 64;
}

static inline rm_act rm_act_at(const void *row, int64_t cols) {
	int64_t padded = rm_act_padded(cols), groups = padded / 32;
	rm_act a;
	a.q = (int8_t *)row;
	a.r = a.q + padded;
	a.d = (float *)(void *)(a.r + padded);
	a.b = a.d + groups;
	a.b0 = a.b + groups;
	a.b1 = a.b0 + groups;
	a.z = (int32_t *)(void *)(a.b1 + groups);
	a.z0 = a.z + groups;
	a.z1 = a.z0 + groups;
	a.groups = groups;
	return a;
}

// rm_act_finish fills the derived arrays from the sums s0, s1 of the two halves
// of group g and from its scale.
static inline void rm_act_finish(const rm_act *a, int64_t g, float d, int32_t s0, int32_t s1) {
	a->d[g] = d;
	a->b[g] = d * (float)(s0 + s1);
	a->b0[g] = d * (float)s0;
	a->b1[g] = d * (float)s1;
	a->z[g] = -128 * (s0 + s1);
	a->z0[g] = -32 * s0;
	a->z1[g] = -32 * s1;
}

// rm_batch_bytes is the size of a batch.
static inline int64_t rm_batch_bytes(int64_t cols) { return rm_act_padded(cols) / 32 * RM_BATCH_GROUP; }

// rm_batches is the number of batches that n rows fill.
static inline int64_t rm_batches(int64_t n) { return (n + RM_BATCH - 1) / RM_BATCH; }

// RM_ACT_MAX is the largest value n: 127*128.
#define RM_ACT_MAX 16256.0f

// rm_act_scale gives the scale d and its inverse from the largest magnitude of
// a group, as bits. Magnitudes so small that the inverse would overflow count
// as zero; an infinity or a NaN makes the scale NaN, so that it shows in every
// result.
// With upper_only the inverse gives q instead of n.
static inline float rm_act_scale(uint32_t amax_bits, int upper_only, float *inverse) {
	*inverse = 0;
	if (amax_bits >= 0x7f800000u) return rm_bits_to_float(0x7fc00000u);
	float amax = rm_bits_to_float(amax_bits);
	if (amax < 0x1p-110f) return 0;
	*inverse = (upper_only ? RM_ACT_MAX / 128 : RM_ACT_MAX) / amax;
	return amax / RM_ACT_MAX;
}

// rm_act_set stores the value n of column i as q and r.
static inline void rm_act_set(const rm_act *a, int64_t i, int32_t n) {
	int32_t q = (n + 64) >> 7;
	a->q[i] = (int8_t)q;
	a->r[i] = (int8_t)(n - 128 * q);
}

// ---- prefetching -----------------------------------------------------------

// rm_ahead says what lies a distance after a byte of a row, where rows are read one
// after the other: in the same row or in one of the next, `row_bytes` apart, of which
// the first `row` bytes are read.
typedef struct rm_ahead {
	int64_t row, gap;    // bytes of a row that are read, and that are not
	int64_t least, rest; // the distance with the gaps that are always crossed; what is left of it then
} rm_ahead;

static inline rm_ahead rm_ahead_of(int64_t row, int64_t row_bytes, int64_t distance) {
	rm_ahead a = {row, row_bytes - row, 0, distance % row};
	a.least = distance + distance / row * a.gap;
	return a;
}

// rm_ahead_from is the distance in bytes from byte `at` of a row.
static inline uintptr_t rm_ahead_from(const rm_ahead *a, int64_t at) {
	return (uintptr_t)(a->least + (at + a->rest >= a->row ? a->gap : 0));
}

// rm_prefetch prefetches the n bytes at `at`, which may lie beyond the weights: a prefetch
// never faults. far, a constant, stops at the second-level cache.
static inline __attribute__((always_inline)) void rm_prefetch(uintptr_t at, int n, int far) {
	for (int i = 0; i < n; i += 64) {
		if (far) {
			__builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 2);
		} else {
			__builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 3);
		}
	}
}

// rm_prefetch_far says that kernels which are faster than memory should prefetch weights
// into the second-level cache only: see cpu_features.c. It is the same for the whole
// process.
int rm_prefetch_far(void);

// ---- reductions ------------------------------------------------------------

static inline float rm_sum8(const float *a) {
	return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

static inline float rm_sum16(const float *a) {
	float h[8];
	for (int i = 0; i < 8; i++) h[i] = a[i] + a[i + 8];
	return rm_sum8(h);
}

// rm_give_sums stores the sums of the eight lanes a, which are summed for time + 1 times in
// this row. Each is rm_sum8 of its lanes and zeros.
static inline void rm_give_sums(const rm_row_sums *s, int64_t time, const float *a, float *out) {
	int64_t each = s->each;
	if (!each) {
		out[time * s->apart] = rm_sum8(a);
		return;
	}
	for (int64_t i = time * (8 / each); i < s->count && i < (time + 1) * (8 / each); i++, a += each) {
		out[i * s->apart] = each == 1 ? a[0] : each == 2 ? a[0] + a[1] : (a[0] + a[2]) + (a[1] + a[3]);
	}
}

// rm_sums_at is the group of columns before which lanes are summed for the first time,
// beyond all if that is after the last column.
static inline int64_t rm_sums_at(const rm_row_sums *s) { return s->supers ? 8 * s->supers : INT64_MAX; }

#endif
