//go:build cgo

package gpu

// #include "device.h"
// #include "args/grids.h"
import "C"

import (
	"unsafe"

	"ringmaster/gguf"
)

// tables binds the grids of the codebook types in memory of the device, the last buffer of every
// kernel of packed products and of their plain companions. A constant of that size in a kernel
// takes some drivers minutes to compile.
func (b *Backend) tables() bind {
	if b.grids.object == nil {
		b.grids = C.rmg_alloc(b.m, 4*C.RMG_GRID_WORDS, 0)
		if b.grids.object == nil {
			b.fail(b.refused("no memory on the GPU for the tables of the codebook types"))
			return b.faults()
		}
		writeGrids(unsafe.Slice((*uint32)(b.grids.contents), C.RMG_GRID_WORDS))
	}
	return bind{C.rmg_binding{object: b.grids.object}, 0, constant, 0}
}

// writeGrids writes the grids as args/grids.h has them.
func writeGrids(words []uint32) {
	for at, grid := range map[int][]uint64{
		C.RMG_GRID_IQ2_XXS: gguf.IQ2XXSGrid[:], C.RMG_GRID_IQ2_XS: gguf.IQ2XSGrid[:], C.RMG_GRID_IQ2_S: gguf.IQ2SGrid[:],
		C.RMG_GRID_IQ1: gguf.IQ1SGrid[:],
	} {
		for i, point := range grid {
			words[at+2*i], words[at+2*i+1] = uint32(point), uint32(point>>32)
		}
	}
	copy(words[C.RMG_GRID_IQ3_XXS:], gguf.IQ3XXSGrid[:])
	copy(words[C.RMG_GRID_IQ3_S:], gguf.IQ3SGrid[:])
}

// withTables are the buffers of a kernel, and the tables where the device's kernels use them.
func (b *Backend) withTables(buffers ...bind) []bind {
	if b.info.Packed {
		buffers = append(buffers, b.tables())
	}
	return buffers
}
