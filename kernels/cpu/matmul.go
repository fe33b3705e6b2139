//go:build cgo

package cpu

/*
#include "cpu.h"
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

// maxProducts is how many products one MatMul call accepts.
const maxProducts = 64

// MatMul: see kernels.Backend. It accepts at most 64 products.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	b.begin(op)
	contract.MatMul(x, rows, products...)
	if len(products) > maxProducts {
		contract.Fail(op, "%d products, at most %d", len(products), maxProducts)
	}
	if rows == 0 || len(products) == 0 {
		return
	}
	var list [maxProducts]C.rm_product
	for i, p := range products {
		b.computable(op, p.W)
		list[i] = C.rm_product{w: cWeight(p.W), out: f32(p.Out)}
	}
	cols := products[0].W.Cols
	b.done(op, C.rm_matmul(b.pool, f32(x), C.int64_t(rows), C.int64_t(cols), &list[0], C.int64_t(len(products))))
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
