// Where the grids of the codebook types begin in the buffer of tables (kernels/gpu/tables.go), in
// words of four magnitudes, for the shading languages and for Go.
#ifndef RMG_GRIDS_H
#define RMG_GRIDS_H

#define RMG_GRID_IQ2_XXS 0   // 256 points of two words
#define RMG_GRID_IQ2_XS 512  // 512 points of two words
#define RMG_GRID_IQ2_S 1536  // 1024 points of two words
#define RMG_GRID_IQ3_XXS 3584 // 256 points of a word
#define RMG_GRID_IQ3_S 3840  // 512 points of a word
#define RMG_GRID_IQ1 4352    // 2048 points of two words, of signed bytes
#define RMG_GRID_WORDS 8448  // in all

#endif
