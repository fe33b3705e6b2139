// Arguments of the kernels of hyper, for the shading languages and for Go.
#ifndef RMG_HYPER_H
#define RMG_HYPER_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

#define RMG_HC_STREAMS 16 // maximum number of streams
#define RMG_HC_SPAN 256 // columns of each stream in a partial dot product
#define RMG_HC_SIMDGROUPS 4 // of a threadgroup of hc_products
#define RMG_HC_EXPAND_SIMDGROUPS 8 // of one of hc_expand_products: a thread for each column of a span
#define RMG_HC_EXPAND_STREAMS 4 // the most of hc_expand_products
#define RMG_HC_GATE_SIMDGROUPS 8 // of a threadgroup of hc_gate

// hc_init, hc_collapse, hc_expand
struct rmg_hc_streams {
	int32_t streams, cols;
	int32_t vectors; // rows consist of aligned float4
};

struct rmg_hc_gate {
	int32_t streams, cols;
	float eps;
};

// hc_products, hc_expand_products
struct rmg_hc_products {
	int32_t rows;          // tokens
	int32_t streams, cols; // Fn has streams*cols columns
	int32_t products;      // rows of Fn
	int32_t first, count;  // rows of Fn in this view
	int32_t spans;         // RMG_HC_SPAN columns of each stream
	int32_t vectors;       // rows consist of aligned vectors of 4
	uint32_t row_bytes, shift;
};

// hc_mix, hc_head
struct rmg_hc {
	int32_t streams, cols;
	int32_t products, spans;
	int32_t iterations;
	int32_t own;     // of hc_mix: the weights of the streams are those that it computes
	int32_t vectors; // of hc_mix: rows consist of aligned float4
	float eps, rms_eps;
};

#endif
