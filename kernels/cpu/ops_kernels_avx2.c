// The kernels of the avx2 level.
#include "ops_kernels.h"
#include "exp.h"
#include "simd.h"

#include <math.h>
#include <stddef.h>

#if RM_X86
RM_BEGIN_AVX2
#define RM_MATH_256
#include "exp.h"
#define RM_KERNELS rm_op_kernels_avx2
#include "ops_vec_avx2.inc.h"

#include "ops_kernels.inc.h"
#include "ops_kernels_exact.inc.h"
#include "ops_kernels_attend.inc.h"
RM_END_TARGET
#endif
