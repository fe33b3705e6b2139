//go:build cgo

package cpu

/*
#include "rm_cpu.h"
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
)

//go:generate go run ./gentables tables.h

// Embed writes row ids[t] of w, as float32, to out [len(ids)][w.Cols].
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	const op = "Embed"
	b.live(op)
	if len(ids) == 0 {
		return
	}
	b.requireComputable(op, w)
	requireLen(op, "out", len(out), len(ids)*w.Cols)
	for t, id := range ids {
		if id < 0 || int(id) >= w.Rows {
			ensure(false, op, "ids[%d] is %d, weight %q has %d rows", t, id, w.Name, w.Rows)
		}
	}
	cw := cWeight(w)
	C.rm_embed(b.pool, f32(out), &cw, i32(ids), C.int64_t(len(ids)))
}

// maxProducts is how many products one MatMul call takes.
const maxProducts = 64

// MatMul multiplies x [rows][K] by each weight; all have Cols == K.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	b.live(op)
	ensure(rows >= 0, op, "%d rows", rows)
	ensure(len(products) <= maxProducts, op, "%d products, at most %d", len(products), maxProducts)
	if rows == 0 || len(products) == 0 {
		return
	}
	var list [maxProducts]C.rm_product
	cols := products[0].W.Cols
	for i, p := range products {
		b.requireComputable(op, p.W)
		ensure(p.W.Cols == cols, op, "weight %q has %d columns, %q has %d", p.W.Name, p.W.Cols, products[0].W.Name, cols)
		ensure(p.W.Slices == 1, op, "weight %q is a stack of %d matrices", p.W.Name, p.W.Slices)
		requireLen(op, "out of "+p.W.Name, len(p.Out), rows*p.W.Rows)
		list[i] = C.rm_product{w: cWeight(p.W), out: f32(p.Out)}
	}
	requireLen(op, "x", len(x), rows*cols)
	b.done(op, C.rm_matmul(b.pool, f32(x), C.int64_t(rows), C.int64_t(cols), &list[0], C.int64_t(len(products))))
}

// MatMulGrouped splits the rows of w and the columns of x in groups:
// out[t][g*n+r] = w[g*n+r] · x[t][g*w.Cols:], n = w.Rows/groups.
func (b *Backend) MatMulGrouped(out, x []float32, rows, groups int, w kernels.Weight) {
	const op = "MatMulGrouped"
	b.live(op)
	ensure(rows >= 0, op, "%d rows", rows)
	if rows == 0 {
		return
	}
	b.requireComputable(op, w)
	ensure(w.Slices == 1, op, "weight %q is a stack of %d matrices", w.Name, w.Slices)
	ensure(groups > 0 && w.Rows%groups == 0, op, "weight %q: %d rows in %d groups", w.Name, w.Rows, groups)
	requireLen(op, "out", len(out), rows*w.Rows)
	requireLen(op, "x", len(x), rows*groups*w.Cols)
	cw := cWeight(w)
	b.done(op, C.rm_matmul_grouped(b.pool, f32(out), f32(x), C.int64_t(rows), C.int64_t(groups), &cw))
}

// requireComputable is requireWeight for a type that can be multiplied.
func (b *Backend) requireComputable(op string, w kernels.Weight) {
	requireWeight(op, w)
	ensure(b.CanCompute(w.Type), op, "weight %q: cannot compute with %s", w.Name, w.Type)
}
