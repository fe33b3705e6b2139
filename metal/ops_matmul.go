//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/matmul.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Each library has an instance of its kernels per weight type.
var (
	embedLibrary = newLibrary("embed", "quant.metal", "matmul.h", "embed.metal")
	gemvLibrary  = newLibrary("GEMV", "quant.metal", "matmul.h", "gemv.metal")
	gemmLibrary  = newLibrary("GEMM", "quant.metal", "matmul.h", "gemm.metal")
	embedKernels = kernelsByType(embedLibrary, "embed")
	gemv1Kernels = kernelsByType(gemvLibrary, "gemv1")
	gemv4Kernels = kernelsByType(gemvLibrary, "gemv4")
	gemv8Kernels = kernelsByType(gemvLibrary, "gemv8")
	gemmKernels  = kernelsByType(gemmLibrary, "gemm")
)

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	const op = "Embed"
	b.live(op)
	c := contract.Embed(out, w, ids)
	chunks := above(w.Cols, 16)
	threads := threadsFor(chunks, 256)
	for _, v := range b.rowViews(op, w) {
		args := C.struct_rmm_embed{
			rows: C.int32_t(w.Rows), first: C.int32_t(v.first), count: C.int32_t(v.count), cols: C.int32_t(w.Cols),
			row_bytes: C.uint32_t(w.RowBytes()), shift: C.uint32_t(v.shift),
		}
		g := grid{groups: [3]int{above(chunks, threads), len(ids), 1}, threads: [3]int{threads, 1, 1}}
		dispatch(b, op, embedKernels[w.Type], &args, g,
			b.operand(&c, "out"), b.operand(&c, "ids"), v.bound(), b.faults())
	}
}

// MatMul: see kernels.Backend. One dispatch per weight: they run concurrently,
// and x is in the caches after the first.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	b.live(op)
	contract.MatMul(x, rows, products...)
	for i := range products {
		c := contract.Product(x, rows, &products[i])
		b.products(&c, rows, 1, products[i].W)
	}
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows, groups int, w kernels.Weight) {
	const op = "MatMulGrouped"
	b.live(op)
	c := contract.MatMulGrouped(out, x, rows, groups, w)
	b.products(&c, rows, groups, w)
}

// products encodes MatMulGrouped. A view that ends within a group takes one dispatch
// per group.
func (b *Backend) products(c *contract.Call, tokens, groups int, w kernels.Weight) {
	if tokens == 0 {
		return
	}
	op, rows := c.Op, w.Rows/groups
	xs, outs := b.operand(c, "x"), b.operand(c, "out")
	for _, v := range b.rowViews(op, w) {
		for first := v.first; first < v.first+v.count; {
			group, n, z := first/rows, 0, 1
			if whole := (v.first + v.count - first) / rows; first%rows == 0 && whole > 0 {
				n, z = rows, whole
			} else {
				n = min((group+1)*rows, v.first+v.count) - first
			}
			args := C.struct_rmm_matmul{
				rows: C.int32_t(n), cols: C.int32_t(w.Cols),
				first: C.uint32_t(first - v.first), row_bytes: C.uint32_t(w.RowBytes()), shift: C.uint32_t(v.shift),
				x_stride: C.uint32_t(groups * w.Cols), x_first: C.uint32_t(group * w.Cols),
				out_stride: C.uint32_t(w.Rows), out_first: C.uint32_t(first),
			}
			each := b.pieceRows(productWork(w, n*z, tokens), tokens, C.RMM_GEMM_TOKENS)
			for token := 0; token < tokens; token += each {
				some := min(each, tokens-token)
				k, g := shape(w, n, some, z, tokens > C.RMM_GEMV_TOKENS)
				args.tokens, args.split = C.int32_t(some), C.int32_t(g.split)
				g.grid.work = productWork(w, n*z, some)
				dispatch(b, op, k, &args, g.grid, outs.rows(token, some, tokens), xs.rows(token, some, tokens), v.bound())
			}
			first += n * z
		}
	}
}

// productGrid is the grid of a GEMV or GEMM.
type productGrid struct {
	grid  grid
	split int // simdgroups that share a row of weights
}

// busy is the number of simdgroups that fill a device: some dozens for each of its
// 8 to 80 cores hide the latency of loads.
const busy = 2048

// productWork is the work of the products of n rows of w with some tokens.
func productWork(w kernels.Weight, n, tokens int) work {
	return work{flops: 2 * float64(n) * float64(w.Cols) * float64(tokens), weights: float64(n) * float64(w.RowBytes())}
}

// shape chooses the kernel, GEMV or GEMM, and its grid.
func shape(w kernels.Weight, rows, tokens, groups int, gemm bool) (*kernel, productGrid) {
	if gemm {
		return gemmKernels[w.Type], productGrid{split: 1, grid: grid{
			groups:  [3]int{above(tokens, C.RMM_GEMM_TOKENS), above(rows, C.RMM_GEMM_ROWS), groups},
			threads: [3]int{32 * C.RMM_GEMM_SIMDGROUPS, 1, 1},
		}}
	}
	byType, most, each := gemv1Kernels, 1, C.RMM_GEMV_ROWS_ONE
	switch {
	case tokens > 4:
		byType, most, each = gemv8Kernels, 8, C.RMM_GEMV_ROWS_MORE
	case tokens > 1:
		byType, most, each = gemv4Kernels, 4, C.RMM_GEMV_ROWS_MORE
	}
	// Matrices of few rows are split by columns as well, as long as each lane has
	// a chunk of 16.
	split := 1
	for split < C.RMM_GEMV_SIMDGROUPS && above(rows, each)*groups*split < busy && w.Cols >= 2*split*32*16 {
		split *= 2
	}
	return byType[w.Type], productGrid{split: split, grid: grid{
		groups:  [3]int{above(rows, C.RMM_GEMV_SIMDGROUPS/split*each), above(tokens, most), groups},
		threads: [3]int{32 * C.RMM_GEMV_SIMDGROUPS, 1, 1},
	}}
}
