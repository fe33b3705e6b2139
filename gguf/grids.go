package gguf

import "math/bits"

// The tables of this file are data of GGML (ggml-common.h), MIT licence,
// Copyright (c) 2023-2026 The ggml authors. A grid is the set of points that a
// codebook type may take for a short run of elements; a block stores indices
// into it. Element i of an entry is byte i, counted from the lowest, so the
// bytes of an entry are in element order in the memory of a little-endian host.
// The packed forms (grids_iq1.go, grids_iq2.go, grids_iq3.go) are expanded when
// the program starts. The variables are exported for reading only.

// IQ2XXSGrid holds the 256 points of IQ2_XXS: 8 magnitudes each, of 8, 25, 43.
var IQ2XXSGrid = [256]uint64(spread[uint64](iq2xxsPacked[:], 8, 2, iq2Levels))

// IQ2XSGrid holds the 512 points of IQ2_XS: 8 magnitudes each, of 8, 25, 43.
var IQ2XSGrid = [512]uint64(spread[uint64](iq2xsPacked[:], 8, 2, iq2Levels))

// IQ2SGrid holds the 1024 points of IQ2_S: 8 magnitudes each, of 8, 25, 43.
var IQ2SGrid = [1024]uint64(spread[uint64](iq2sPacked[:], 8, 2, iq2Levels))

// IQ3XXSGrid holds the 256 points of IQ3_XXS: 4 magnitudes each, of
// 4, 12, 20, 28, 36, 44, 52, 62.
var IQ3XXSGrid = [256]uint32(spread[uint32](iq3xxsPacked[:], 4, 3, [8]byte{4, 12, 20, 28, 36, 44, 52, 62}))

// IQ3SGrid holds the 512 points of IQ3_S: 4 odd magnitudes each, 1 to 15.
var IQ3SGrid = [512]uint32(spread[uint32](iq3sPacked[:], 4, 3, [8]byte{1, 3, 5, 7, 9, 11, 13, 15}))

// IQ1SGrid holds the 2048 points of IQ1_S and IQ1_M: 8 signed bytes each, of
// -1, 0, +1 (two's complement).
var IQ1SGrid = [2048]uint64(spread[uint64](iq1sPacked[:], 8, 2, [8]byte{0xff, 0, 1}))

// SignMasks maps a stored 7-bit sign index to the signs of 8 elements: bit j
// set means that element j is negative. Bits 0..6 are the index itself; bit 7
// makes the number of negative elements even, which is why it is not stored.
// IQ2_XXS, IQ2_XS and IQ3_XXS use it.
var SignMasks = func() (masks [128]uint8) {
	for i := range masks {
		masks[i] = uint8(i | bits.OnesCount(uint(i))&1<<7)
	}
	return masks
}()

// IQ4NLValues is the non-linear 16-value table of IQ4_NL and IQ4_XS.
var IQ4NLValues = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// MXFP4Values is the E2M1 table of MXFP4 doubled, so that every value is an
// integer: the true values are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
// (bit 3 of the code is the sign). The scale that goes with the doubled values
// is 2^(e-128), see MXFP4Scale.
var MXFP4Values = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// iq2Levels are the magnitudes that the two-bit codes of the IQ2 grids stand
// for.
var iq2Levels = [8]byte{8, 25, 43}

// spread expands each packed point, n codes of the given width, to an entry of n bytes,
// lowest first in both.
func spread[E uint32 | uint64](packed []uint16, n, width int, levels [8]byte) []E {
	grid := make([]E, len(packed))
	for i, p := range packed {
		for j := range n {
			code := p >> (j * width) & (1<<width - 1)
			grid[i] |= E(levels[code]) << (8 * j)
		}
	}
	return grid
}
