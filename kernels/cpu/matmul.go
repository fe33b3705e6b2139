//go:build cgo

package cpu

/*
#include "cpu.h"
#include "ops.h"
#cgo noescape rm_matmul
#cgo nocallback rm_matmul
#cgo noescape rm_matmul_grouped
#cgo nocallback rm_matmul_grouped
#cgo noescape rm_embed
#cgo nocallback rm_embed
*/
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

//go:generate go run ./gentables tables.h

// Embed: see kernels.Backend. An id that is not a row of w is misuse.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	op := b.check(contract.Embed(out, w, ids))
	b.computable(op, w)
	contract.Rows(op, ids, w.Rows)
	if len(ids) == 0 {
		return
	}
	cw := cWeight(w)
	C.rm_embed(b.pool, f32(out), &cw, i32(ids), C.int64_t(len(ids)))
}

// maxProducts is how many matrices one MatMul call accepts.
const maxProducts = 64

// MatMul: see kernels.Backend. It accepts at most 64 matrices.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	b.begin(op)
	contract.MatMul(x, rows, products...)
	var list [maxProducts]C.rm_product
	n := 0
	add := func(w kernels.Weight, out []float32) {
		b.computable(op, w)
		if n == len(list) {
			contract.Fail(op, "more than %d matrices", len(list))
		}
		list[n] = C.rm_product{w: cWeight(w), out: f32(out)}
		n++
	}
	for i := range products {
		p := &products[i]
		add(p.W, p.Out)
		if p.Up.Exists() {
			add(p.Up, p.UpOut)
		}
	}
	if rows == 0 || n == 0 {
		return
	}
	cols := products[0].W.Cols
	b.done(op, C.rm_matmul(b.pool, f32(x), C.int64_t(rows), C.int64_t(cols), &list[0], C.int64_t(n)))
	for i := range products {
		if p := &products[i]; p.Up.Exists() {
			C.rm_op_swiglu(b.pool, f32(p.Out), f32(p.Out), f32(p.UpOut), C.int64_t(rows*p.W.Rows), C.float(p.Clamp))
		}
	}
}

// NormMatMul: see kernels.Backend.
func (b *Backend) NormMatMul(x, weight []float32, eps float32, rows int, products ...kernels.Product) {
	contract.NormMatMul(x, weight, rows, products...)
	b.RMSNorm(x, x, weight, rows, products[0].W.Cols, eps)
	b.MatMul(x, rows, products...)
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	op := b.check(contract.MatMulGrouped(out, x, rows, w))
	b.computable(op, w)
	if rows == 0 {
		return
	}
	cw := cWeight(w)
	b.done(op, C.rm_matmul_grouped(b.pool, f32(out), f32(x), C.int64_t(rows), &cw))
}
