//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"errors"
	"unsafe"

	"ringmaster/gguf"
)

// tables binds the grid of IQ2_XXS in memory of the device, the last buffer of every kernel of
// packed products. A constant of that size in a kernel takes some drivers minutes to compile.
func (b *Backend) tables() bind {
	if b.grids.object == nil {
		b.grids = C.rmg_alloc(b.m, C.uint64_t(unsafe.Sizeof(gguf.IQ2XXSGrid)), 0)
		if b.grids.object == nil {
			b.fail(errors.New("no memory on the GPU for the tables of IQ2_XXS"))
			return b.faults()
		}
		copy(unsafe.Slice((*uint64)(b.grids.contents), len(gguf.IQ2XXSGrid)), gguf.IQ2XXSGrid[:])
	}
	return bind{C.rmg_binding{object: b.grids.object}, 0, constant}
}

// withTables are the buffers of a kernel, and the tables where the device's kernels use them.
func (b *Backend) withTables(buffers ...bind) []bind {
	if b.info.Packed {
		buffers = append(buffers, b.tables())
	}
	return buffers
}
