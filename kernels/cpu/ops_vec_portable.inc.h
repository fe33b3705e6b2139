// A vector of 4 floats in the compilers' own vector types, which become SSE2
// and NEON registers. See ops_kernels.inc.h for what the names mean. A product
// and a sum are rounded separately here.
typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));
#define VW 4
#define VTILE 2 // rows of a register tile that holds VTILE*4 accumulators
#define VINLINE static inline __attribute__((always_inline))

VINLINE vec v_set(float x) { return (vec){x, x, x, x}; }
VINLINE vec v_load(const float *p) {
	vec x;
	memcpy(&x, p, sizeof x);
	return x;
}
VINLINE void v_store(float *p, vec x) { memcpy(p, &x, sizeof x); }
VINLINE vec v_load_n(const float *p, int64_t n) {
	float x[VW] = {0};
	for (int64_t i = 0; i < n; i++) x[i] = p[i];
	return v_load(x);
}
VINLINE void v_store_n(float *p, vec x, int64_t n) {
	for (int64_t i = 0; i < n; i++) p[i] = x[i];
}
VINLINE vec v_load_f16_n(const uint16_t *p, int64_t n) {
	float x[VW] = {0};
	for (int64_t i = 0; i < n; i++) x[i] = rm_float16_to_float(p[i]);
	return v_load(x);
}
VINLINE vec v_load_f16(const uint16_t *p) { return v_load_f16_n(p, VW); }
VINLINE void v_store_f16_n(uint16_t *p, vec x, int64_t n) {
	for (int64_t i = 0; i < n; i++) p[i] = rm_float_to_float16(x[i]);
}
VINLINE void v_store_f16(uint16_t *p, vec x) { v_store_f16_n(p, x, VW); }
VINLINE vec v_load_bf16_n(const uint16_t *p, int64_t n) {
	float x[VW] = {0};
	for (int64_t i = 0; i < n; i++) x[i] = rm_bf16_to_float(p[i]);
	return v_load(x);
}
VINLINE vec v_load_bf16(const uint16_t *p) { return v_load_bf16_n(p, VW); }
VINLINE vec v_add(vec a, vec b) { return a + b; }
VINLINE vec v_sub(vec a, vec b) { return a - b; }
VINLINE vec v_mul(vec a, vec b) { return a * b; }
VINLINE vec v_div(vec a, vec b) { return a / b; }
VINLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
VINLINE vec v_pick(vec_int yes, vec a, vec b) {
	return (vec)(((vec_bits)a & (vec_bits)yes) | ((vec_bits)b & ~(vec_bits)yes));
}
VINLINE vec v_abs(vec x) { return (vec)((vec_bits)x & (vec_bits){0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}); }
VINLINE vec v_round_f16(vec x) {
	uint16_t h[VW];
	v_store_f16(h, x);
	vec_int beyond = (x >= v_set(RM_FLOAT16_END)) | (x <= v_set(-RM_FLOAT16_END));
	return v_pick(beyond, x, v_load_f16(h));
}
typedef vec_int v_ints;
VINLINE v_ints v_fixed(vec x) { return __builtin_convertvector(x * v_set(0x1p24f), v_ints); }
VINLINE v_ints v_fixed_add(v_ints a, v_ints b) { return a + b; }
VINLINE void v_fixed_store(int32_t *p, v_ints x) { memcpy(p, &x, sizeof x); }
VINLINE vec v_min(vec bound, vec x) { return v_pick(bound < x, bound, x); }
VINLINE vec v_max(vec bound, vec x) { return v_pick(bound > x, bound, x); }
VINLINE vec v_exp(vec x) { return (vec){rm_expf_inline(x[0]), rm_expf_inline(x[1]), rm_expf_inline(x[2]), rm_expf_inline(x[3])}; }
VINLINE float v_sum(vec x) { return (x[0] + x[2]) + (x[1] + x[3]); }
VINLINE void v_sums(float *out, int64_t ld, vec a[VTILE][4], float factor) {
	for (int h = 0; h < VTILE; h++) {
		for (int k = 0; k < 4; k++) out[h * ld + k] = factor * v_sum(a[h][k]);
	}
}
