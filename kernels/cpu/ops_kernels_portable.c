// The kernels of the portable level.
#include "ops_kernels.h"
#include "rm_math.h"
#include "rm_simd.h"

#include <math.h>
#include <stddef.h>

#define RM_KERNELS rm_op_kernels_portable
#include "ops_vec_portable.h"

#include "ops_kernels_body.h"
#include "ops_kernels_attend.h"
