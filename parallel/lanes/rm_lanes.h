// Exact sums to and from lanes with vector instructions; package lanes says what they are.
// Every function does the same as the one of its name in Go.
#ifndef RM_LANES_H
#define RM_LANES_H

#include <stdint.h>

enum {
	RM_LANES_BLOCK = 64, // sums of a block; the last one of a row may have fewer
	RM_LANES_BITS = 24, // of a lane but the last
	RM_LANES_NAN = 1 << 23, // last of three lanes of what is not a number
	RM_LANES_NAN_END = 1 << 22, // above those of all others

	// Forms of blocks.
	RM_LANES_ZEROS = 0,
	RM_LANES_WORDS = 1,
	RM_LANES_TRIPLES = 2,
	RM_LANES_ONE = 3,
	RM_LANES_TWO = 4,
	RM_LANES_MANY = 5,
};

// rm_lanes_level returns the best instruction set of this processor.
int rm_lanes_level(void);

// rm_lanes_measure writes the limits of each block of sums [rows][width], two bytes each.
void rm_lanes_measure(int level, uint8_t *limits, const int64_t *sums, int64_t rows, int64_t width);

// rm_lanes_encode writes the lanes of sums [rows][width] to dst, which has room for them.
void rm_lanes_encode(int level, int32_t *dst, const uint8_t *layouts, const int64_t *sums, int64_t rows, int64_t width);

// rm_lanes_add adds lanes to sums [rows][width], or with replace puts them in their place.
// With careful unset no sum and no lane is that of what is not a number, unless it is the
// last of three.
void rm_lanes_add(int level, int64_t *sums, const uint8_t *layouts, const int32_t *src, int64_t rows, int64_t width,
                  int replace, int careful);

#endif
