//go:build cgo

package gpu

// #include "args/matmul.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Each library has an instance of its kernels per weight type.
var (
	embedLibrary = "embed"
	gemvLibrary  = "GEMV"
	gemmLibrary  = "GEMM"
	embedKernels = kernelsByType(embedLibrary, "embed")
	gemv1Kernels = kernelsByType(gemvLibrary, "gemv1")
	gemv4Kernels = kernelsByType(gemvLibrary, "gemv4")
	gemv8Kernels = kernelsByType(gemvLibrary, "gemv8")
	gemmKernels  = kernelsByType(gemmLibrary, "gemm")
)

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	c := b.check(contract.Embed(out, w, ids))
	chunks := above(w.Cols, 16)
	threads := threadsFor(chunks, 256)
	for _, v := range b.rowViews(c.Op, w) {
		args := C.struct_rmg_embed{
			rows: C.int32_t(w.Rows), first: C.int32_t(v.first), count: C.int32_t(v.count), cols: C.int32_t(w.Cols),
			row_bytes: C.uint32_t(w.Stride()), shift: C.uint32_t(v.shift),
		}
		g := grid{groups: [3]int{above(chunks, threads), len(ids), 1}, threads: [3]int{threads, 1, 1}}
		dispatch(b, c.Op, embedKernels[w.Type], &args, g,
			b.withTables(b.operand(&c, "out"), b.operand(&c, "ids"), v.bound(), b.faults())...)
	}
}

// MatMul: see kernels.Backend. The products of one row are one dispatch where there is a
// kernel for their types. Otherwise it has one dispatch per matrix, because they run
// concurrently and x is in the caches after the first.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	b.live(op)
	contract.MatMul(x, rows, products...)
	var in input // shared, because all have the same x
	var some many
	for i := range products {
		p := &products[i]
		c := contract.Product(x, rows, p)
		in.plain = b.operand(&c, "x")
		out := b.operand(&c, "out")
		if rows == 1 && !b.info.Packed && b.joins(&some, &c, in.plain, p, out) {
			continue
		}
		b.products(op, out, &in, rows, p.W)
		if p.Up.Exists() {
			b.products(op, b.operand(&c, "upOut"), &in, rows, p.Up)
			b.elementwise(&c, swigluKernel, rows*p.W.Rows, p.Clamp, "out", "out", "upOut")
		}
	}
	b.dispatchMany(op, in.plain, &some)
}

// NormMatMul: see kernels.Backend. The products of one row norm it themselves if they are one
// dispatch.
func (b *Backend) NormMatMul(x, weight []float32, eps float32, rows int, products ...kernels.Product) {
	c := b.check(contract.NormMatMul(x, weight, rows, products...))
	if rows != 1 || b.info.Packed || !b.normMany(&c, x, eps, products) {
		b.RMSNorm(x, x, weight, rows, products[0].W.Cols, eps)
		b.MatMul(x, rows, products...)
	}
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	c := b.check(contract.MatMulGrouped(out, x, rows, w))
	b.products(c.Op, b.operand(&c, "out"), &input{plain: b.operand(&c, "x")}, rows, w)
}

// products encodes the products of a matrix, or those of MatMulGrouped.
func (b *Backend) products(op string, out bind, x *input, tokens int, w kernels.Weight) {
	switch {
	case tokens == 0:
	case w.Slices == 1 || w.SliceBytes < w.MatrixBytes(): // side by side
		for _, v := range b.rowViews(op, w) {
			all := run{row: v.first, rows: v.count, groups: w.Slices}
			if v.count == w.Rows {
				b.product(op, out, x, tokens, w, v, all)
				continue
			}
			for all.groups = 1; all.group < w.Slices; all.group++ {
				all.skip = all.group * w.SliceBytes
				b.product(op, out, x, tokens, w, v, all)
			}
		}
	case w.SliceBytes == w.Rows*w.Stride(): // one after the other: the rows of a tall matrix
		tall := w
		tall.Slices, tall.Rows = 1, w.Slices*w.Rows
		for _, v := range b.rowViews(op, tall) {
			for at := 0; at < v.count; {
				group, row := (v.first+at)/w.Rows, (v.first+at)%w.Rows
				r := run{row: row, rows: min(w.Rows-row, v.count-at), group: group, groups: 1, skip: at * w.Stride()}
				if row == 0 {
					r.groups = max(1, (v.count-at)/w.Rows)
				}
				b.product(op, out, x, tokens, w, v, r)
				at += r.rows * r.groups
			}
		}
	default: // with gaps
		for g := range w.Slices {
			for _, v := range b.rowViews(op, w.SliceRange(g, g+1)) {
				b.product(op, out, x, tokens, w, v, run{row: v.first, rows: v.count, group: g, groups: 1})
			}
		}
	}
}

// run is consecutive rows of some groups of a product.
type run struct {
	row, rows     int // the first one of each group, and how many
	group, groups int // the first group, and how many; more than one only with all rows
	skip          int // bytes from the first byte of the view to the first row
}

// runArgs are the arguments for a run, but for the tokens.
func runArgs(w kernels.Weight, v view, r run) C.struct_rmg_matmul {
	return C.struct_rmg_matmul{
		group_bytes: C.uint64_t(w.SliceBytes), skip: C.uint64_t(v.shift + r.skip),
		rows: C.int32_t(r.rows), cols: C.int32_t(w.Cols), row_bytes: C.uint32_t(w.Stride()),
		x_stride: C.uint32_t(w.Slices * w.Cols), x_first: C.uint32_t(r.group * w.Cols),
		out_stride: C.uint32_t(w.Slices * w.Rows), out_first: C.uint32_t(r.group*w.Rows + r.row),
		scale: C.float(w.Scale(0)),
	}
}

// product encodes a run.
func (b *Backend) product(op string, outs bind, x *input, tokens int, w kernels.Weight, v view, r run) {
	if b.info.Packed {
		b.packedProduct(op, outs, x, tokens, w, v, r)
		return
	}
	xs := x.plain
	args := runArgs(w, v, r)
	n := r.rows * r.groups
	each := b.pieceRows(productWork(w, n, tokens), tokens, C.RMG_GEMM_TOKENS)
	for token := 0; token < tokens; token += each {
		some := min(each, tokens-token)
		k, g := b.shape(w, r.rows, some, r.groups, tokens > C.RMG_GEMV_TOKENS)
		args.tokens, args.split = C.int32_t(some), C.int32_t(g.split)
		g.grid.work = productWork(w, n, some)
		dispatch(b, op, k, &args, g.grid, outs.rows(token, some, tokens), xs.rows(token, some, tokens), v.bound())
	}
}

// productGrid is the grid of a GEMV or GEMM.
type productGrid struct {
	grid  grid
	split int // simdgroups that share a row of weights
}

// productWork is the work of the products of n rows of w with some tokens.
func productWork(w kernels.Weight, n, tokens int) work {
	return work{flops: 2 * float64(n) * float64(w.Cols) * float64(tokens), weights: float64(n) * float64(w.RowBytes())}
}

// shape chooses the kernel, GEMV or GEMM, and its grid.
func (b *Backend) shape(w kernels.Weight, rows, tokens, groups int, gemm bool) (*kernel, productGrid) {
	if gemm {
		return gemmKernels[w.Type], productGrid{split: 1, grid: grid{
			groups:  [3]int{above(tokens, C.RMG_GEMM_TOKENS), above(rows, C.RMG_GEMM_ROWS), groups},
			threads: [3]int{32 * C.RMG_GEMM_SIMDGROUPS, 1, 1},
		}}
	}
	byType, most, each := gemv1Kernels, 1, C.RMG_GEMV_ROWS_ONE
	switch {
	case tokens > 4:
		byType, most, each = gemv8Kernels, 8, C.RMG_GEMV_ROWS_MORE
	case tokens > 1:
		byType, most, each = gemv4Kernels, 4, C.RMG_GEMV_ROWS_MORE
	}
	// Matrices of few rows are split by columns as well, as long as each lane has
	// a chunk of 16.
	split := 1
	for split < C.RMG_GEMV_SIMDGROUPS && above(rows, each)*groups*split < b.info.Busy && w.Cols >= 2*split*32*16 {
		split *= 2
	}
	return byType[w.Type], productGrid{split: split, grid: grid{
		groups:  [3]int{above(rows, C.RMG_GEMV_SIMDGROUPS/split*each), above(tokens, most), groups},
		threads: [3]int{32 * C.RMG_GEMV_SIMDGROUPS, 1, 1},
	}}
}
