//go:build cgo

package gpu

// #include "args/gemv_many.h"
// #include "args/matmul.h"
import "C"

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Kernels of several products of one row: of matrices of one type, and of matrices of two, for
// the pairs in which files of quantised models have the matrices that one row is multiplied with.
var (
	gemvManyKernels  = kernelsByType(gemvLibrary, "gemv_many")
	gemvMixedKernels = map[[2]gguf.Type]*kernel{
		{gguf.Q8_0, gguf.F16}:  rareKernel(gemvLibrary, "gemv_many_q8_0_f16"),
		{gguf.Q8_0, gguf.F32}:  rareKernel(gemvLibrary, "gemv_many_q8_0_f32"),
		{gguf.Q8_0, gguf.BF16}: rareKernel(gemvLibrary, "gemv_many_q8_0_bf16"),
	}
)

// many is products of one row that become one dispatch.
type many struct {
	args   C.struct_rmg_gemv_many
	groups int
	work   work
	gated  bool
	types  [C.RMG_MANY]gguf.Type
	outs   [C.RMG_MANY]bind
	data   [C.RMG_MANY]bind
	first  kernels.Weight // the first matrix
	norm   bind           // weights of the norm, with one
}

// kernel is the kernel for the types of the products and of some more, and the first type of a
// kernel for two; nil if there is none.
func (m *many) kernel(more ...gguf.Type) (*kernel, gguf.Type) {
	var types []gguf.Type // each once
	for _, t := range append(m.types[:m.args.count:m.args.count], more...) {
		if len(types) == 0 || types[0] != t && (len(types) == 1 || types[1] != t) {
			types = append(types, t)
		}
	}
	switch len(types) {
	case 1:
		return gemvManyKernels[types[0]], types[0]
	case 2:
		for _, pair := range [][2]gguf.Type{{types[0], types[1]}, {types[1], types[0]}} {
			if k := gemvMixedKernels[pair]; k != nil {
				return k, pair[0]
			}
		}
	}
	return nil, 0
}

// joins adds a product to those of a dispatch, which it encodes first if it is full or has no
// kernel for the product as well. It reports whether it did: not if a matrix takes several views,
// or if gate and up have no kernel in common.
func (b *Backend) joins(m *many, c *contract.Call, x bind, p *kernels.Product, out bind) bool {
	matrices := []kernels.Weight{p.W}
	if p.Up.Exists() {
		matrices = append(matrices, p.Up)
	}
	var types []gguf.Type
	for _, w := range matrices {
		if len(b.rowViews(c.Op, w)) != 1 {
			return false
		}
		types = append(types, w.Type)
	}
	gated := len(matrices) > 1
	if k, _ := m.kernel(types...); k == nil || int(m.args.count)+len(matrices) > C.RMG_MANY || gated && m.gated {
		b.dispatchMany(c.Op, x, m)
		*m = many{}
		if k, _ = m.kernel(types...); k == nil {
			return false
		}
	}
	if m.args.count == 0 {
		m.first = p.W
	}
	_, g := b.shape(p.W, p.W.Rows, 1, 1, false)
	for i, w := range matrices {
		at, v := m.args.count, b.rowViews(c.Op, w)[0]
		m.args.first[at], m.args.rows[at], m.args.row_bytes[at] = C.uint32_t(m.groups), C.uint32_t(w.Rows), C.uint32_t(w.Stride())
		m.args.scale[at], m.args.shift[at], m.args.split[at] = C.float(w.Scale(0)), C.uint8_t(v.shift), C.uint8_t(g.split)
		m.types[at], m.outs[at], m.data[at] = w.Type, b.faults(), v.bound()
		if i == 0 {
			m.outs[at] = out
			m.groups += g.grid.groups[0]
		}
		if i == 0 && gated {
			m.args.kind[at] = C.RMG_MANY_GATE
			m.args.clamp, m.gated = C.float(p.Clamp), true
		}
		m.work = m.work.plus(productWork(w, w.Rows, 1))
		m.args.count++
	}
	m.args.cols = C.uint32_t(p.W.Cols)
	return true
}

// normMany encodes the norm of one row and its products if they can be one dispatch, and reports
// whether it has. The norm's sums have the order of RMSNorm's for aligned float4.
func (b *Backend) normMany(c *contract.Call, row []float32, eps float32, products []kernels.Product) bool {
	const op = "NormMatMul"
	x, weight, cols := b.operand(c, "x"), b.operand(c, "weight"), products[0].W.Cols
	if cols%4 != 0 || !aligned(16, x, weight) {
		return false
	}
	var types []gguf.Type
	gates := 0
	for i := range products {
		matrices := []kernels.Weight{products[i].W}
		if products[i].Up.Exists() {
			matrices = append(matrices, products[i].Up)
			gates++
		}
		for _, w := range matrices {
			if len(b.rowViews(op, w)) != 1 {
				return false
			}
			types = append(types, w.Type)
		}
	}
	var m many
	if k, _ := m.kernel(types...); k == nil || len(types) >= C.RMG_MANY || gates > 1 {
		return false
	}
	x.access = reads
	for i := range products {
		p := contract.Product(row, 1, &products[i])
		if !b.joins(&m, &p, x, &products[i], b.operand(&p, "out")) {
			return false // the first one, whose type has no kernel of its own: nothing is encoded
		}
	}
	m.args.norm, m.args.eps, m.norm = C.uint32_t(threadsFor(cols/4, 256)), C.float(eps), weight
	b.dispatchMany(op, x, &m)
	return true
}

// dispatchMany encodes the products, one alone and without a norm with the kernel for it.
func (b *Backend) dispatchMany(op string, x bind, m *many) {
	switch {
	case m.args.count == 0:
		return
	case m.args.count == 1 && m.args.norm == 0:
		b.products(op, m.outs[0], &input{plain: x}, 1, m.first)
		return
	}
	k, first := m.kernel()
	buffers := []bind{x}
	for i, out := range m.outs {
		if i >= int(m.args.count) {
			m.types[i], out, m.data[i] = first, b.faults(), b.faults() // not used
		}
		if m.types[i] != first {
			m.args.kind[i] |= C.RMG_MANY_SECOND
		}
		buffers = append(buffers, out)
	}
	if m.args.norm != 0 {
		m.data[C.RMG_MANY-1] = m.norm
	}
	buffers = append(buffers, m.data[:]...)
	g := lines(m.groups, 32*C.RMG_GEMV_SIMDGROUPS)
	g.work = m.work
	dispatch(b, op, k, &m.args, g, buffers...)
}
