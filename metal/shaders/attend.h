// Arguments of the kernels of attend.metal, for Metal and for Go.
#ifndef RMM_ATTEND_H
#define RMM_ATTEND_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

enum {
	RMM_ATTEND_KEYS = 16,   // of a tile of attend_tiles
	RMM_ATTEND_HEADS = 16,  // of its threadgroup
	RMM_ATTEND_SLICES = 8,  // of a head, and simdgroups of its threadgroup
	RMM_ATTEND_SPLITS = 32, // the most parts that the keys of a row are split in
	RMM_ATTEND_ANY = 128,   // keys of a tile, and threads, of attend_any
};

struct rmm_attend {
	int32_t pos, heads, dim, window, ring_rows;
	int32_t ratio;    // 0: there are no compressed entries
	int32_t top_k;    // 0: all entries are seen, not those in Selected
	int32_t entries;  // in Compressed
	int32_t splits;   // parts of the keys of a row
	int32_t span;     // keys of a part, a multiple of RMM_ATTEND_KEYS
	uint32_t raw_skip, compressed_skip; // elements before the rows in their bindings
	float scale;
};

#endif
