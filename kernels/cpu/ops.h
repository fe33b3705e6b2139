// The ops other than GEMM and GEMV, as the Go side calls them. Names, shapes
// and formulas are those of package kernels. Arguments have been checked.
// Functions return RM_OK or RM_E_*.
#ifndef RM_OPS_H
#define RM_OPS_H

#include "cpu.h"

int rm_op_rms_norm(rm_pool *p, float *out, const float *x, const float *weight, int64_t rows, int64_t cols, float eps);
void rm_op_layer_norm(rm_pool *p, float *out, const float *x, const float *weight, const float *bias, int64_t rows,
                      int64_t cols, float eps);
void rm_op_hadamard(rm_pool *p, float *x, int64_t rows, int64_t dim);

typedef struct rm_rope {
	float *x;           // [rows][heads][head_dim]
	const int32_t *pos; // [rows]
	const float *freqs; // [rot_dim/2]
	int64_t rows, heads, head_dim, rot_dim;
	int front, halves, inverse;
	float magnitude; // of sine and cosine
} rm_rope;
int rm_op_rope(rm_pool *p, rm_rope a);
// rm_rope_angles writes cos and sin [rot_dim/2] of pos*freqs, times magnitude.
void rm_rope_angles(float *cosine, float *sine, int32_t pos, const float *freqs, int64_t rot_dim, float magnitude);
// rm_rope_turn rotates the rot_dim elements at x in interleaved pairs, or in those of
// their halves.
void rm_rope_turn(float *x, const float *cosine, const float *sine, int64_t rot_dim, int halves, int inverse);

void rm_op_hc_init(rm_pool *p, float *h, const float *x, int64_t rows, int64_t streams, int64_t cols);

typedef struct rm_hc_mix {
	const float *h; // [rows][streams][cols]
	rm_weight fn;   // [(2+S)*S][S*cols]
	const float *base, *scale;
	float *pre, *post, *comb; // [rows][S], [rows][S], [rows][S][S]
	int64_t rows, streams, cols, iterations;
	float eps, rms_eps;
} rm_hc_mix;
int rm_op_hc_mix(rm_pool *p, rm_hc_mix a);
void rm_op_hc_collapse(rm_pool *p, float *out, const float *h, const float *pre, int64_t rows, int64_t streams,
                       int64_t cols);
void rm_op_hc_expand(rm_pool *p, float *h, const float *y, const float *post, const float *comb, int64_t rows,
                     int64_t streams, int64_t cols);

typedef struct rm_hc_head {
	float *out;     // [rows][cols]
	const float *h; // [rows][streams][cols]
	rm_weight fn;   // [S][S*cols]
	const float *base, *scale;
	int64_t rows, streams, cols;
	float eps, rms_eps;
} rm_hc_head;
int rm_op_hc_head(rm_pool *p, rm_hc_head a);

typedef struct rm_hc_gate {
	float *h;                       // [rows][streams][cols]
	const float *kv;                // [rows][streams+1][cols]
	const float *h_norm, *key_norm; // [streams][cols]
	int64_t rows, streams, cols;
	float eps;
} rm_hc_gate;
int rm_op_hc_gate(rm_pool *p, rm_hc_gate a);

void rm_op_store_kv(rm_pool *p, uint16_t *ring, const float *x, int64_t rows, int64_t cols, int64_t pos,
                    int64_t ring_rows);

typedef struct rm_compress {
	const float *kv, *score; // [rows][width]
	rm_weight ape;           // [ratio][width], F32, F16 or BF16; data NULL: none
	const float *norm;       // [dim]
	const float *freqs;      // [rot_dim/2]
	float *ring_kv, *ring_score; // [ring_rows][width]
	uint16_t *cache;             // [entries][dim]
	float *latent;               // [entries of the call][dim] in place of cache, or NULL
	int64_t rows, pos, ratio, dim, rot_dim, ring_rows;
	int overlap, hadamard;
	float eps;
} rm_compress;
int rm_op_compress(rm_pool *p, rm_compress a);

typedef struct rm_index {
	const float *q;           // [rows][heads][dim]
	const float *head_weight; // [rows][heads]
	const uint16_t *cache;    // [entries][dim]
	int32_t *selected;        // [rows][top_k]
	int32_t *blocks;          // [rows][blocks_kept] or NULL; with mask it is read
	int64_t rows, pos, heads, dim, top_k, ratio, entries;
	int64_t blocks_kept, block_size;
	int mask;
	float scale;
} rm_index;
int rm_op_index_top_k(rm_pool *p, rm_index a);
// rm_select writes the indices of the k largest of n > k scores, ascending;
// among equal scores the first ones win.
void rm_select(int32_t *out, const float *score, int64_t n, int64_t k);
// rm_select_of is rm_select among the n >= k scores with the indices at, which
// are ascending; out may be at.
void rm_select_of(int32_t *out, const float *score, const int32_t *at, int64_t n, int64_t k);
// rm_kth_score is the k-th largest of n >= k scores without a NaN.
float rm_kth_score(const float *score, int64_t n, int64_t k);

typedef struct rm_attend {
	const float *q;             // [rows][heads][head_dim]
	const uint16_t *raw;        // [ring_rows][head_dim]
	const uint16_t *compressed; // [entries][head_dim]
	const int32_t *selected;    // [rows][top_k] or NULL
	const float *sinks;         // [heads] or NULL
	float *out;                 // [rows][heads][value_dim]
	int64_t rows, pos, heads, head_dim, value_dim;
	int64_t window; // 0: all positions
	int64_t ring_rows, ratio, top_k;
	float scale;
} rm_attend;
int rm_op_attend(rm_pool *p, rm_attend a);

// As kernels.Score and kernels.GroupScore.
enum { RM_SQRT_SOFTPLUS, RM_SIGMOID, RM_SOFTMAX };
enum { RM_GROUP_BEST, RM_GROUP_TOP_TWO };

typedef struct rm_route {
	const float *logits; // [rows][experts]
	const float *bias;   // [experts] or NULL
	const int32_t *table, *tokens;
	int32_t *ids;   // [rows][used]
	float *weights; // [rows][used]
	int64_t rows, experts, used;
	int score;
	int64_t groups, groups_used; // groups <= 1: none
	int group_score;
	int normalise;
	float scale;
} rm_route;
int rm_op_route(rm_pool *p, rm_route a);
void rm_op_expert_mask(float *weights, const int32_t *ids, int64_t n, int64_t start, int64_t end);
int rm_op_expert_compact(rm_pool *p, int32_t *offsets, int32_t *slots, const int32_t *ids, int64_t n, int64_t experts,
                         int64_t start, int64_t end);

void rm_op_sum_slots(rm_pool *p, float *out, const float *slots, int64_t rows, int64_t used, int64_t cols);
void rm_op_sum_exact(rm_pool *p, int64_t *sums, const float *terms, int64_t rows, int64_t count, int64_t cols, int add);
void rm_op_round_sums(rm_pool *p, float *out, const int64_t *sums, int64_t n);
void rm_op_swiglu(rm_pool *p, float *out, const float *gate, const float *up, int64_t n, float clamp);
void rm_op_add(rm_pool *p, float *out, const float *a, const float *b, int64_t n);
void rm_op_to_float16(rm_pool *p, uint16_t *out, const float *x, int64_t n);
void rm_op_from_float16(rm_pool *p, float *out, const uint16_t *x, int64_t n);
void rm_op_clear(rm_pool *p, float *x, int64_t n);
void rm_op_gather(rm_pool *p, float *out, const float *x, const int32_t *rows, int64_t n, int64_t cols);
void rm_op_copy_columns(rm_pool *p, float *out, const float *x, int64_t rows, int64_t cols, int64_t out_cols,
                        int64_t x_cols);

// rm_grain is how many items of the given cost (roughly, elements touched) make
// a chunk worth giving to another thread.
static inline int64_t rm_grain(int64_t cost) { return cost >= 16384 ? 1 : 16384 / (cost < 1 ? 1 : cost); }

#endif
