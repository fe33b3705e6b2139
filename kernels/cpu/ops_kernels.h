// The inner loops of the ops, one table of them per instruction set level.
//
// Every function works on one row or tile in one thread and gives the same bits
// for it whatever else the call computes: sums run in an order that depends on
// the length alone, and the elements of a tail go through the same vector
// instructions as the rest.
#ifndef RM_OPS_KERNELS_H
#define RM_OPS_KERNELS_H

#include <stdint.h>

// Types that dots reads directly; every other type is converted to F32 first.
enum { RM_TYPE_F32 = 0, RM_TYPE_F16 = 1, RM_TYPE_BF16 = 30 };

// The smallest float32 that rounds to an infinite float16: 65504 and half a
// step.
#define RM_FLOAT16_END 65520.0f
// index_scores needs the queries transposed, with heads padded to a multiple of
// this.
#define RM_INDEX_LANES 64

typedef struct rm_op_kernels {
	// sum of x[i]²
	float (*sum_squares)(const float *x, int64_t n);
	// out = x * scale * weight; weight may be NULL; out may be x
	void (*scale)(float *out, const float *x, const float *weight, float scale, int64_t n);
	// out[r*ldo+k] = x[r*ldx:] · w[k], w of `type`, rows `row_bytes` apart
	void (*dots)(float *out, int64_t ldo, const float *x, int64_t ldx, int64_t rows, const uint8_t *w,
	             int64_t row_bytes, int64_t k, int64_t n, int32_t type);
	// out = a + b; out may be a or b
	void (*add)(float *out, const float *a, const float *b, int64_t n);
	// out = a + b with b of type F32, F16 or BF16
	void (*add_typed)(float *out, const float *a, const uint8_t *b, int64_t n, int32_t type);
	void (*swiglu)(float *out, const float *gate, const float *up, int64_t n, float clamp);
	// out[c] = slots[c] + slots[stride+c] + ..., used of them
	void (*sum_slots)(float *out, const float *slots, int64_t used, int64_t stride, int64_t n);
	// sums[c] = terms[c] + terms[stride+c] + ..., count of them, or is increased by that
	void (*sum_exact)(int64_t *sums, const float *terms, int64_t count, int64_t stride, int64_t n, int add);
	void (*round_sums)(float *out, const int64_t *sums, int64_t n);
	void (*to_float16)(uint16_t *dst, const float *src, int64_t n);
	void (*from_float16)(float *dst, const uint16_t *src, int64_t n);
	void (*hadamard)(float *x, int64_t dim);
	// out[c] = sum_s pre[s]*h[s*stride+c], n channels
	void (*collapse)(float *out, const float *h, const float *pre, int64_t s, int64_t stride, int64_t n);
	// h[j*stride+c] = post[j]*y[c] + sum_i comb[i*s+j]*h[i*stride+c]; s <= 16
	void (*expand)(float *h, const float *y, const float *post, const float *comb, int64_t s, int64_t stride, int64_t n);
	// out[c] = softmax-weighted sum over the candidates i < count of
	// kv[i][c], weights by score[i][c], n channels
	void (*pool_channels)(float *out, const float *const *kv, const float *const *score, int64_t count, int64_t n);
	// score[e] = sum_h w[h]*max(0, q[h]·keys[e]) for count float16 entries of
	// dim elements. qt [groups][dim][64], w [groups][64], padded with zeros.
	// tmp has room for 8*dim floats.
	void (*index_scores)(float *score, const float *qt, const float *w, int64_t groups, int64_t dim,
	                     const uint16_t *keys, int64_t count, float *tmp);
	// dst[k*n+i] = rows[k][from+i], count rows, n elements of each
	void (*from_float16_rows)(float *dst, const uint16_t *const *rows, int64_t from, int64_t count, int64_t n);
	// score[h*lds+k] = scale * q[h*dim:]·keys[k*dim:], count keys. Meanwhile it
	// prefetches `coming` float16 rows of dim elements: those of the next call.
	void (*attend_scores)(float *score, int64_t lds, const float *q, int64_t heads, const float *keys, int64_t count,
	                      int64_t dim, float scale, const uint16_t *const *ahead, int64_t coming);
	// out[h*ldo+c] += sum_k weight[h*ldw+k]*keys[k*ldk+c], k ascending, n
	// channels
	void (*attend_values)(float *out, int64_t ldo, const float *weight, int64_t ldw, int64_t heads, const float *keys,
	                      int64_t ldk, int64_t count, int64_t n);
	// x[i] = exp(x[i]-max), returns their sum
	float (*exp_sum)(float *x, float max, int64_t n);
	float (*max)(const float *x, int64_t n);
} rm_op_kernels;

extern const rm_op_kernels rm_op_kernels_portable;
#if defined(__x86_64__)
extern const rm_op_kernels rm_op_kernels_avx2;
extern const rm_op_kernels rm_op_kernels_avx512;
#elif defined(__aarch64__)
extern const rm_op_kernels rm_op_kernels_neon; // where RM_NEON
#endif

// rm_op_kernels_at is the table for a level.
const rm_op_kernels *rm_op_kernels_at(int level);

#endif
