// The memory layout of activations of two to eight tokens for matmul_amx_few.c.
#ifndef RM_MATMUL_AMX_FEW_H
#define RM_MATMUL_AMX_FEW_H

// One record per pair of groups (64 columns), in the order of the columns. Up
// to four tokens: [16][16][4] bytes, d [8] and b [8]. Row v < 8 has bytes
// 4v..4v+3 of the first group in even columns 2t (upper byte, token t) and 8+2t
// (lower byte), row v >= 8 those of the second group in the odd columns next to
// them; the rest is zero. d and b alternate between the first and the second
// group of each token. Beyond four tokens: [16][16][4] upper bytes, [16][16][4]
// lower ones, columns 2t and 2t+1 for token t, d [16] and b [16].
enum { RM_FEW_D = 1024, RM_FEW = 1024 + 64, RM_FEW_WIDE_D = 2048, RM_FEW_WIDE = 2048 + 128 };

#endif
