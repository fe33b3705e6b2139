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
	// Longer queries may make an infinity of a finite product: 1e30 times a
	// key of halves does not.
	if (!(squares < 1e60)) return INFINITY;
	// The tile unit takes what is below 2^-126 for zero. That is no more than
	// the share below of a query of this length, with the shortest key there is.
	return fabs((double)weight) * (sqrt(squares) * (1 + 1e-9) + 1e-24);
}

double rm_approx_bound(double reach, double norm, int64_t heads, int64_t dim) {
	double whole = reach * norm;
	if (!(whole < (double)FLT_MAX / 16)) return INFINITY; // a sum may overflow on the way
	// The rest of the query, the product that is left out, and the roundings:
	// of 3*dim products and heads sums here, of dim and heads there.
	double share = 0x1p-16 + 1.02 * 0x1p-15 + (double)(4 * dim + 2 * heads + 64) * 0x1p-24;
	return 1.02 * share * whole + 1e-30;
}
