// Arguments of the kernels of streams.metal, for Metal and for Go.
#ifndef RM_METAL_STREAMS_H
#define RM_METAL_STREAMS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

enum {
	RM_STREAMS = 16,      // the most
	RM_HC_SPAN = 1024,    // columns of a partial product
	RM_HC_SIMDGROUPS = 4, // of a threadgroup of hc_products
};

// hc_init, hc_collapse, hc_expand
struct rm_streams {
	int32_t streams, cols;
	int32_t vectors; // rows are whole float4 at aligned addresses
};

struct rm_hc_products {
	int32_t rows, n;       // tokens, and columns of Fn
	int32_t products;      // rows of Fn
	int32_t first, count;  // rows of Fn in this view
	int32_t spans;         // RM_HC_SPAN columns each
	int32_t vectors;       // all rows are whole vectors of 4 at aligned addresses
	uint32_t row_bytes, shift;
};

// hc_mix, hc_head
struct rm_hc {
	int32_t streams, cols;
	int32_t products, spans;
	int32_t iterations;
	float eps, rms_eps;
};

#endif
