// Types of weights by their numbers in GGUF files, and loads from their blocks.
// TABLES is the address of kernels/gpu/tables.go.
#ifndef TYPES_GLSL
#define TYPES_GLSL
#include "../../gpu/args/grids.h"

#define F32 0u
#define F16 1u
#define Q4_0 2u
#define Q4_1 3u
#define Q5_0 6u
#define Q5_1 7u
#define Q8_0 8u
#define Q2_K 10u
#define Q3_K 11u
#define Q4_K 12u
#define Q5_K 13u
#define Q6_K 14u
#define IQ2_XXS 16u
#define IQ2_XS 17u
#define IQ3_XXS 18u
#define IQ1_S 19u
#define IQ4_NL 20u
#define IQ3_S 21u
#define IQ2_S 22u
#define IQ4_XS 23u
#define IQ1_M 29u
#define BF16 30u
#define MXFP4 39u
#define NVFP4 40u

uint byte_at(uint64_t at) { return InBytes(at).at[0]; }
uint short_at(uint64_t at) { return InShorts(at).at[0]; }                  // at even addresses
uint word_at(uint64_t at) { return short_at(at) | short_at(at + 2ul) << 16; } // at even addresses
uint word4_at(uint64_t at) { return InUints(at).at[0]; }                   // at multiples of 4

#endif
