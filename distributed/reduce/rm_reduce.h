// Sums of blocks with vector instructions. The rules are those of the Go package:
// blocks in the given order, float16 added in float32 and rounded once to nearest
// even, and a NaN result is the canonical one.
#ifndef RM_REDUCE_H
#define RM_REDUCE_H

#include <stdint.h>

enum {
	RM_REDUCE_BLOCKS = 8, // maximum in one call

	RM_REDUCE_PLAIN = 0, // no code here is faster than plain Go
	RM_REDUCE_NEON = 1,  // every arm64
	RM_REDUCE_AVX2 = 1,  // with F16C
	RM_REDUCE_AVX512 = 2,

	// Types of elements.
	RM_REDUCE_F32 = 0,
	RM_REDUCE_F16 = 1,
	RM_REDUCE_I32 = 2,
};

// rm_reduce_level returns the best level of this processor.
int rm_reduce_level(void);

// rm_reduce_sum adds k (2 to 8) blocks of n elements of a type. dst may be one of the
// blocks. No alignment is needed. level is not RM_REDUCE_PLAIN and at most
// rm_reduce_level().
void rm_reduce_sum(int level, int type, void *dst, int64_t n, int k, const void *p0, const void *p1, const void *p2,
                   const void *p3, const void *p4, const void *p5, const void *p6, const void *p7);

// rm_reduce_nonfinite returns 1 if one of n float16 values is infinite or NaN.
int rm_reduce_nonfinite(int level, const void *x, int64_t n);

#endif
