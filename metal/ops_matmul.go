//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/matmul.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	embedLibrary = newLibrary("embed", "quant.metal", "matmul.h", "matmul_embed.metal")
	embedKernels = kernelsByType(embedLibrary, "embed")
)

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	const op = "Embed"
	b.live(op)
	contract.Embed(out, w, ids)
	if len(ids) == 0 {
		return
	}
	chunks := (w.Cols + 15) / 16
	threads := min(256, (chunks+31)/32*32)
	for _, v := range b.rowViews(op, w) {
		args := C.struct_rm_embed{
			rows: C.int32_t(w.Rows), first: C.int32_t(v.first), count: C.int32_t(v.count), cols: C.int32_t(w.Cols),
			row_bytes: C.uint32_t(w.RowBytes()), shift: C.uint32_t(v.shift), tokens: C.int32_t(len(ids)),
		}
		g := grid{groups: [3]int{(chunks + threads - 1) / threads, len(ids), 1}, threads: [3]int{threads, 1, 1}}
		dispatch(b, op, embedKernels[w.Type], &args, g,
			slice(b, op, out, len(ids)*w.Cols, writes), slice(b, op, ids, len(ids), reads), v.bound(), b.faults())
	}
}
