// The kernels of the neon level.
#include "ops_kernels.h"
#include "exp.h"
#include "simd.h"

#include <math.h>
#include <stddef.h>

#if RM_NEON
RM_BEGIN_NEON
#include "exp_neon.inc.h"
#define RM_KERNELS rm_op_kernels_neon
#include "ops_vec_neon.inc.h"

#include "ops_kernels.inc.h"
#include "ops_kernels_exact.inc.h"
#include "ops_kernels_attend.inc.h"
RM_END_TARGET
#endif
