// Arguments of the kernels of attend, for the shading languages and for Go.
#ifndef RMG_ATTEND_H
#define RMG_ATTEND_H

#if !defined(__METAL_VERSION__) && !defined(VULKAN)
#include <stdint.h>
#endif

#define RMG_ATTEND_KEYS 16 // per tile of attend_tiles
#define RMG_ATTEND_HEADS 16 // per threadgroup
#define RMG_ATTEND_SLICES 8 // per head, and simdgroups per threadgroup
#define RMG_ATTEND_SPLITS 32 // maximum number of splits of the keys of a row
#define RMG_ATTEND_SPAN 128 // keys of a span, where a row has at most RMG_ATTEND_SPLITS of them
#define RMG_ATTEND_ANY 128 // attend_any: keys per tile, and threads

struct rmg_attend {
	int32_t pos, heads, dim;
	int32_t ring_rows; // 0: no raw rows
	int32_t value;    // elements of a row that are summed
	int32_t window;   // 0: all positions
	int32_t sunk;     // there are sinks
	int32_t ratio;    // 0: no compressed entries
	int32_t top_k;    // 0: attend to all entries instead of those in Selected
	int32_t entries;  // number of entries in Compressed
	int32_t splits;   // of the keys of a row
	int32_t span;     // keys per split, a multiple of RMG_ATTEND_KEYS
	uint32_t raw_skip, compressed_skip; // elements before the rows in their bindings
	int32_t pairs; // of attend_combine: that are rotated back, at the end of a head
	float scale;
	int32_t rotated, normed; // of attend_tiles: the queries are rotated first, and normed
	int32_t q_pairs;         // that are rotated, at the end of a query
	float eps;               // of the norm
};

#endif
