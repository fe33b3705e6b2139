// The C side of package cpu: declarations that every kernel file may use.
//
// Files named *.inc.h are bodies: several files include them, each inside its
// own target section and with its own types. (Go's build cache recognises files
// by their extension; it would miss a change to a plain .inc file.) Every
// external name begins with rm_.
//
// Conventions. Counts and offsets are int64_t: expert number times rows times
// bytes per row exceeds 2^31. Functions that can fail return 0 or an RM_E_*
// code, which the Go side reports at the next Flush. Results depend neither on
// the number of workers nor on which worker runs a chunk.
#ifndef RM_CPU_H
#define RM_CPU_H

#include <stddef.h>
#include <stdint.h>

// Instruction set levels. A level includes the lower ones of the same
// architecture; NEON includes only the portable one.
enum {
	RM_LEVEL_PORTABLE = 0, // C only
	RM_LEVEL_AVX2 = 1,     // AVX2, FMA, F16C
	RM_LEVEL_AVX512 = 2,   // and AVX-512 F, BW, DQ, VL, VNNI
	RM_LEVEL_AMX = 3,      // and AMX with int8 and bfloat16
	RM_LEVEL_NEON = 4,     // aarch64 with dot products of bytes (dotprod, and i8mm where present)
};

enum {
	RM_OK = 0,
	RM_E_MEMORY = 1, // out of memory
};

// rm_cpu_level is the best level that this host's processor and operating
// system support.
int rm_cpu_level(void);
// rm_cpu_has reports whether this host supports a level.
int rm_cpu_has(int level);
// rm_cpu_count is the number of processors this process may run on (cpuset).
int rm_cpu_count(void);

// ---- memory ----------------------------------------------------------------

// rm_alloc returns n > 0 zeroed bytes aligned to 64, or NULL. Allocations of 16
// KiB and more are separate mappings: untouched pages cost nothing and rm_free
// returns them to the system. rm_free needs the same n.
void *rm_alloc(size_t n);
void rm_free(void *p, size_t n);

// ---- thread pool -----------------------------------------------------------

typedef struct rm_pool rm_pool;

// rm_task runs items [begin, end) of a loop on worker number `worker`.
typedef void (*rm_task)(void *arg, int64_t begin, int64_t end, int worker);

// rm_pool_new starts n-1 threads (the caller of rm_pool_for is worker 0) that
// compute at `level`. It returns NULL if memory or threads cannot be allocated.
rm_pool *rm_pool_new(int n, int level);
// rm_pool_set_upper_only says whether the ops that follow multiply quantised weights by
// activations of 8 bits (matmul.h) in place of 15, as at first. Call it between ops.
void rm_pool_set_upper_only(rm_pool *p, int upper_only);
// rm_pool_free joins the threads and frees the pool.
void rm_pool_free(rm_pool *p);
int rm_pool_size(const rm_pool *p);
int rm_pool_level(const rm_pool *p);

// rm_pool_for runs task over [0, n) in chunks of `grain` items (the last may
// be shorter; grain < 1 is 1) and returns when all are done. Chunks always
// begin at multiples of grain. One caller at a time; task must not call it.
void rm_pool_for(rm_pool *p, int64_t n, int64_t grain, rm_task task, void *arg);

// rm_pool_scratch returns a buffer of at least `bytes` bytes, aligned to 64,
// that belongs to one worker until its next rm_pool_scratch. Its content is
// undefined. NULL if out of memory. Call it for every worker before the loop
// (rm_pool_reserve does) so that tasks need not check the result.
void *rm_pool_scratch(rm_pool *p, int worker, size_t bytes);
// rm_pool_reserve ensures that rm_pool_scratch(p, w, bytes) succeeds for all
// workers.
int rm_pool_reserve(rm_pool *p, size_t bytes);
// rm_pool_shared returns one buffer shared by all workers, for data that one
// loop writes and a later one reads (quantised activations). Call it only
// outside loops; the next call invalidates the buffer.
void *rm_pool_shared(rm_pool *p, size_t bytes);
// rm_pool_bytes is the size of all these buffers.
size_t rm_pool_bytes(const rm_pool *p);

// ---- weights ---------------------------------------------------------------

// rm_weight is kernels.Weight. type is the GGUF number.
typedef struct rm_weight {
	const uint8_t *data;
	int64_t cols, rows;  // K, N of one matrix
	int64_t row_bytes;   // bytes from one row to the next
	int64_t slice_bytes; // bytes from one matrix to the next
	int64_t slices;      // number of matrices
	const float *scales; // by which products are multiplied, or NULL: matrix i's is scales[i * scale_step]
	int64_t scale_step;  // 1, or 0 if one is for all
	int32_t type;
} rm_weight;

// rm_scale_of is where the scale of a matrix is, or NULL.
static inline const float *rm_scale_of(const rm_weight *w, int64_t slice) {
	return w->scales ? w->scales + slice * w->scale_step : NULL;
}

typedef struct rm_product {
	rm_weight w;
	float *out; // [rows][w.rows]
} rm_product;

// rm_can_compute is 1 if weights of the GGUF type can be multiplied.
int rm_can_compute(int32_t type);
// rm_dequant_row converts n elements (a multiple of the type's block) of a row
// of the type at src to float32 at dst [n].
void rm_dequant_row(int32_t type, const uint8_t *src, float *dst, int64_t n);

// rm_matmul: out_i[t][r] = w_i[r] · x[t] for each product; x [rows][cols].
// Returns RM_OK or RM_E_MEMORY.
int rm_matmul(rm_pool *p, const float *x, int64_t rows, int64_t cols, const rm_product *products, int64_t count);
// rm_matmul_grouped: out[t][g][r] = w[g][r] · x[t][g*cols:], g < w.slices.
int rm_matmul_grouped(rm_pool *p, float *out, const float *x, int64_t rows, const rm_weight *w);

// rm_packs is 1 if weights of the type are multiplied by quantised activations.
int rm_packs(int32_t type);
// rm_pack_rows: see kernels.Packer. packed [rows][cols/32*68], aligned to 4; cols is a
// multiple of 32. Returns RM_OK or RM_E_MEMORY.
int rm_pack_rows(rm_pool *p, uint8_t *packed, const float *x, int64_t rows, int64_t cols);
// rm_unpack_rows is the inverse, into out [rows][cols].
void rm_unpack_rows(rm_pool *p, float *out, const uint8_t *packed, int64_t rows, int64_t cols);

// rm_embed: out[t] = row ids[t] of w as float32; out [n][w.cols].
void rm_embed(rm_pool *p, float *out, const rm_weight *w, const int32_t *ids, int64_t n);

// rm_experts is kernels.ExpertArgs. offsets [experts+1], slots
// [offsets[experts]], weights [rows*used].
typedef struct rm_experts {
	const int32_t *offsets, *slots;
	const float *weights;
	int64_t rows, used, experts;
	int64_t start, end; // the local experts
} rm_experts;

// rm_expert_gate_up: mid[slot] = weight*silu(gate[e]·x[t])*(up[e]·x[t]); x
// [rows][K], mid [rows*used][F]. A slot of weight 0 or of an expert outside
// [start, end) gets zeros. Returns RM_OK or RM_E_MEMORY.
int rm_expert_gate_up(rm_pool *p, float *mid, const float *x, const rm_weight *gate, const rm_weight *up, float clamp,
                      const rm_experts *e);
// rm_expert_down: out[slot] = down[e]·mid[slot], other rows zero; mid
// [rows*used][F], out [rows*used][D]. Returns RM_OK or RM_E_MEMORY.
int rm_expert_down(rm_pool *p, float *out, const float *mid, const rm_weight *down, const rm_experts *e);

// ---- memory bandwidth -------------------------------------------------------

// rm_stream reads the n bytes at mem, a multiple of 64, once, with all threads
// of the pool, and returns the sum of the 64-bit words modulo 2^64.
uint64_t rm_stream(rm_pool *p, const uint8_t *mem, int64_t n);
// rm_stream_touch writes to every page of the n bytes at mem, so that each is
// backed by physical memory of its own.
void rm_stream_touch(rm_pool *p, uint8_t *mem, int64_t n);
// rm_cache_bytes is the size of the last-level cache, 0 if the system does not
// report it.
int64_t rm_cache_bytes(void);

// ---- conversions -----------------------------------------------------------

// rm_f16_to_f32 and rm_f32_to_f16 convert float16 exactly as the hardware does
// (round to nearest, ties to even).
float rm_f16_to_f32(uint16_t h);
uint16_t rm_f32_to_f16(float f);
// rm_f16_to_f32_row and rm_f32_to_f16_row convert n elements at the pool's level.
void rm_f16_to_f32_row(const rm_pool *p, float *dst, const uint16_t *src, int64_t n);
void rm_f32_to_f16_row(const rm_pool *p, uint16_t *dst, const float *src, int64_t n);

// rm_expf, rm_silu: the only exponential of this package. The result depends on
// the argument alone, at every level, in vector or in scalar code: it is built
// of fused multiply-adds in one fixed order. The error is below 2 ulp in [-87,
// 88]; below that range the result is 0, above it infinity.
float rm_expf(float x);
// In loops over many values prefer exp.h, which has inline scalar and vector
// versions with the same bits.
static inline float rm_silu(float x) { return x / (1.0f + rm_expf(-x)); }

#endif
