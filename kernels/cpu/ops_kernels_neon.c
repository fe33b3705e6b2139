// The kernels of the neon level.
#include "ops_kernels.h"
#include "rm_math.h"
#include "rm_simd.h"

#include <math.h>
#include <stddef.h>

#if RM_NEON
RM_BEGIN_NEON
#include "rm_math_neon.h"
#define RM_KERNELS rm_op_kernels_neon
#include "ops_vec_neon.h"

#include "ops_kernels_body.h"
#include "ops_kernels_attend.h"
RM_END_TARGET
#endif
