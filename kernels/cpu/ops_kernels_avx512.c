// The kernels of the avx512 level.
#include "ops_kernels.h"
#include "rm_math.h"
#include "rm_simd.h"

#include <math.h>
#include <stddef.h>

#if RM_X86
RM_BEGIN_AVX512
#define RM_MATH_512
#include "rm_math.h"
#define RM_KERNELS rm_op_kernels_avx512
#include "ops_vec_avx512.h"

#include "ops_kernels_body.h"
#include "ops_kernels_attend.h"
RM_END_TARGET
#endif
