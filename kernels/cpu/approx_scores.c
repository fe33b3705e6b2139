// The error bound of the approximate scores.
#include "approx_scores.h"
#include "cpu.h"
#include "simd.h"

#include <float.h>
#include <math.h>

#if RM_X86
extern const rm_approx rm_approx_amx;
#endif

const rm_approx *rm_approx_at(int level, int64_t dim) {
#if RM_X86
	if (level == RM_LEVEL_AMX && dim % 32 == 0) return &rm_approx_amx;
#endif
	(void)level;
	(void)dim;
	return NULL;
}

double rm_approx_reach(float weight, double squares) {
	// A longer query could overflow an otherwise finite product to infinity;
	// 1e30 times a float16 key cannot.
	if (!(squares < 1e60)) return INFINITY;
	// The tile unit flushes values below 2^-126 to zero. The term 1e-24 covers
	// that: the loss is at most the error share (rm_approx_bound) of a query of
	// that length and the shortest possible key.
	return fabs((double)weight) * (sqrt(squares) * (1 + 1e-9) + 1e-24);
}

double rm_approx_bound(double reach, double norm, int64_t heads, int64_t dim) {
	double whole = reach * norm;
	if (!(whole < (double)FLT_MAX / 16)) return INFINITY; // a sum may overflow on the way
	// The remainder of the query, the omitted product, and the rounding errors:
	// of 3*dim products and heads sums here, of dim and heads in the exact
	// score.
	double share = 0x1p-16 + 1.02 * 0x1p-15 + (double)(4 * dim + 2 * heads + 64) * 0x1p-24;
	return 1.02 * share * whole + 1e-30;
}
