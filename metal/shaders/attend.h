// Arguments of the kernels of attend.metal, for Metal and for Go.
#ifndef RM_METAL_ATTEND_H
#define RM_METAL_ATTEND_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

enum {
	RM_ATTEND_KEYS = 16,   // of a tile of attend_tiles
	RM_ATTEND_HEADS = 16,  // of its threadgroup
	RM_ATTEND_SLICES = 8,  // of a head, and simdgroups of its threadgroup
	RM_ATTEND_SPLITS = 32, // the most parts that the keys of a row are split in
	RM_ATTEND_ANY = 128,   // keys of a tile, and threads, of attend_any
};

struct rm_attend {
	int32_t pos, heads, dim, window, ring_rows;
	int32_t ratio;    // 0: there are no compressed entries
	int32_t top_k;    // 0: all entries are seen, not those in Selected
	int32_t entries;  // in Compressed
	int32_t splits;   // parts of the keys of a row
	int32_t span;     // keys of a part, a multiple of RM_ATTEND_KEYS
	uint32_t raw_skip, compressed_skip; // elements before the rows in their bindings
	float scale;
};

#endif
