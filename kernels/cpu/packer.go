//go:build cgo

package cpu

/*
#include "cpu.h"
#cgo noescape rm_pack_rows
#cgo nocallback rm_pack_rows
#cgo noescape rm_unpack_rows
#cgo nocallback rm_unpack_rows
*/
import "C"

import (
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var _ kernels.Packer = (*Backend)(nil)

// Packer is b.
func (b *Backend) Packer() kernels.Packer { return b }

// Packs: see kernels.Packer.
func (b *Backend) Packs(t gguf.Type) bool { return b.CanCompute(t) && C.rm_packs(C.int32_t(t)) != 0 }

// PackRows: see kernels.Packer.
func (b *Backend) PackRows(out []byte, x []float32, rows, cols int) {
	if b.packs("PackRows", out, x, rows, cols) {
		b.done("PackRows", C.rm_pack_rows(b.pool, u8(out), f32(x), C.int64_t(rows), C.int64_t(cols)))
	}
}

// UnpackRows: see kernels.Packer.
func (b *Backend) UnpackRows(out []float32, packed []byte, rows, cols int) {
	if b.packs("UnpackRows", packed, out, rows, cols) {
		C.rm_unpack_rows(b.pool, f32(out), u8(packed), C.int64_t(rows), C.int64_t(cols))
	}
}

// packs checks the arguments of op and reports whether there is anything to do.
func (b *Backend) packs(op string, packed []byte, x []float32, rows, cols int) bool {
	b.begin(op)
	if rows < 0 || cols <= 0 || cols%kernels.PackedGroup != 0 {
		contract.Fail(op, "%d rows of %d columns; expected a multiple of %d", rows, cols, kernels.PackedGroup)
	}
	if len(x)/cols < rows || len(packed)/kernels.PackedBytes(cols) < rows {
		contract.Fail(op, "%d values and %d bytes are not %d rows of %d columns", len(x), len(packed), rows, cols)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(packed)))%4 != 0 {
		contract.Fail(op, "the packed rows are not aligned to 4 bytes")
	}
	return rows > 0
}

func u8(x []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(x))) }
