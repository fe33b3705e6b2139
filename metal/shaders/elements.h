// Arguments of the kernels of elements.metal, for Metal and for Go.
#ifndef RM_METAL_ELEMENTS_H
#define RM_METAL_ELEMENTS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Kernels over n elements.
struct rm_elements {
	int32_t n;
	float clamp; // of SwiGLU
};

#endif
