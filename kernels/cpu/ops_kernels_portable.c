// The kernels of the portable level.
#include "ops_kernels.h"
#include "exp.h"
#include "simd.h"

#include <math.h>
#include <stddef.h>

#define RM_KERNELS rm_op_kernels_portable
#include "ops_vec_portable.inc.h"

#include "ops_kernels.inc.h"
#include "ops_kernels_exact.inc.h"
#include "ops_kernels_attend.inc.h"
