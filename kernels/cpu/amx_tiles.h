// AMX tiles: the instructions, and the memory layout of activations for them.
#ifndef RM_AMX_TILES_H
#define RM_AMX_TILES_H

#include "matmul.h"

#if RM_X86

// The tile instructions as inline assembly: the compilers' intrinsics do not
// declare the memory they access (gcc 12 drops stores that precede them).
#define TILE_ZERO(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define TILE_LOAD(t, p, stride) \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, p) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)64) : "memory")
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

// tiles_on: tiles 0 to 3 are accumulators [16][16] of int32. With `groups` (1
// or 2) groups of 32 columns per product, tiles 4 and 5 hold weights
// [16][32*groups] and tiles 6 and 7 activations [8*groups][16][4].
static inline void tiles_on(int groups) {
	static const struct {
		uint8_t palette, start, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} config[] = {
		{.palette = 1, .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 8, 8}},
		{.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}},
	};
	__asm__ volatile("ldtilecfg %0" ::"m"(config[groups - 1]));
}

static inline void tiles_off(void) { __asm__ volatile("tilerelease" ::); }

// A batch is n <= 16 tokens, stored as one record per group, in the order of a
// slab. For more than 8 tokens a record is q [8][16][4], r [8][16][4], and d,
// b, b0, b1 [16]; for up to 8 it is q and r side by side [8][16][4] (q in the
// first 8 columns), and d, b, b0, b1 [8]. So up to 8 tokens need one tile
// product where more need two.
enum { WHOLE_RECORD = RM_BATCH_GROUP, WHOLE_D = 1024, HALF_RECORD = 640, HALF_D = 512 };

#endif
#endif
