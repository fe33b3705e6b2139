//go:build cgo

package gpu

// #include "args/hyper.h"
import "C"

import (
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	hyperLibrary     = "hyper-connections"
	hcInitKernel     = newKernel(hyperLibrary, "hc_init")
	hcCollapseKernel = newKernel(hyperLibrary, "hc_collapse")
	hcExpandKernel   = newKernel(hyperLibrary, "hc_expand")
	hcMixKernel      = newKernel(hyperLibrary, "hc_mix")
	hcHeadKernel     = newKernel(hyperLibrary, "hc_head")
	hcGateKernel     = newKernel(hyperLibrary, "hc_gate")
	// for one token, for hcTokens, and for one whose streams are expanded first
	hcProductKernels = map[gguf.Type][3]*kernel{
		gguf.F32:  {newKernel(hyperLibrary, "hc_products_f32_1"), newKernel(hyperLibrary, "hc_products_f32_4"), newKernel(hyperLibrary, "hc_expand_products_f32")},
		gguf.F16:  {newKernel(hyperLibrary, "hc_products_f16_1"), newKernel(hyperLibrary, "hc_products_f16_4"), newKernel(hyperLibrary, "hc_expand_products_f16")},
		gguf.BF16: {newKernel(hyperLibrary, "hc_products_bf16_1"), newKernel(hyperLibrary, "hc_products_bf16_4"), newKernel(hyperLibrary, "hc_expand_products_bf16")},
	}
)

// hcTokens and hcRows are the tokens and the rows of Fn that a simdgroup of
// hc_products takes when there are many tokens; it takes 1 and 2 of few.
const hcTokens, hcRows = 4, 4

// HCInit: see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	c := b.check(contract.HCInit(h, x, rows, streams, cols))
	to, from := b.operand(&c, "h"), b.operand(&c, "x")
	vectors := cols%4 == 0 && aligned(16, to, from)
	args := C.struct_rmg_hc_streams{streams: C.int32_t(streams), cols: C.int32_t(cols), vectors: flag(vectors)}
	dispatch(b, c.Op, hcInitKernel, &args, columns(cols, rows, vectors), to, from)
}

// HCCollapse: see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	c := b.check(contract.HCCollapse(out, h, pre, rows, streams, cols))
	to, from := b.operand(&c, "out"), b.operand(&c, "h")
	vectors := cols%4 == 0 && aligned(16, to, from)
	args := C.struct_rmg_hc_streams{streams: C.int32_t(streams), cols: C.int32_t(cols), vectors: flag(vectors)}
	dispatch(b, c.Op, hcCollapseKernel, &args, columns(cols, rows, vectors), to, from, b.operand(&c, "pre"))
}

// HCExpand: see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	c := b.check(contract.HCExpand(h, y, post, comb, rows, streams, cols))
	b.hcExpand(c.Op, rows, streams, cols, b.operand(&c, "h"), b.operand(&c, "y"), b.operand(&c, "post"), b.operand(&c, "comb"))
}

func (b *Backend) hcExpand(op string, rows, streams, cols int, h, y, post, comb bind) {
	vectors := streams == 4 && cols%4 == 0 && aligned(16, h, y)
	args := C.struct_rmg_hc_streams{streams: C.int32_t(streams), cols: C.int32_t(cols), vectors: flag(vectors)}
	dispatch(b, op, hcExpandKernel, &args, columns(cols, rows, vectors), h, y, post, comb)
}

// hcParts encodes the products of the flat streams H with the rows of fn, and
// returns where their parts will be, [rows][spans][fn.Rows+1], and the number of
// spans. nil: there is no memory. expansion has Y, Post and Comb if the streams are expanded
// first: of few rows by the products' dispatch, whose sums have the same order.
func (b *Backend) hcParts(c *contract.Call, fn kernels.Weight, rows, streams int, expansion ...bind) ([]float32, int) {
	op, cols := c.Op, fn.Cols/streams
	n, spans := fn.Cols, above(cols, C.RMG_HC_SPAN)
	typ, rowBytes := fn.Type, fn.Stride()
	by, direct := hcProductKernels[typ]
	parts, wide := rows*spans*(fn.Rows+1), 0
	if !direct {
		wide = fn.Rows * n
	}
	memory := b.scratch(op, wide+parts)
	if memory == nil {
		return nil, 0
	}
	views := []view{{count: fn.Rows}}
	if direct {
		views = b.rowViews(op, fn)
	} else { // of a type that no known model has here: widened for each call
		ids := b.counting(op, fn.Rows)
		if ids == nil {
			return nil, 0
		}
		b.Embed(memory, fn, ids)
		typ, rowBytes, by = gguf.F32, 4*n, hcProductKernels[gguf.F32]
	}
	k, tokens, each := by[0], 1, 2
	if rows >= hcTokens {
		k, tokens, each = by[1], hcTokens, hcRows
	}
	to, from := between(b, op, memory[wide:], parts, writes), b.operand(c, "H")
	together := len(expansion) > 0 && len(views) == 1 && rows < hcTokens && streams <= C.RMG_HC_EXPAND_STREAMS
	if len(expansion) > 0 && !together {
		b.hcExpand(op, rows, streams, cols, from, expansion[0], expansion[1], expansion[2])
		from.access = reads
	}
	for _, v := range views {
		weights := v.bound()
		if !direct {
			weights = between(b, op, memory, wide, reads)
		}
		size := 4 * typ.BlockBytes()
		args := C.struct_rmg_hc_products{
			rows: C.int32_t(rows), streams: C.int32_t(streams), cols: C.int32_t(cols), products: C.int32_t(fn.Rows), first: C.int32_t(v.first),
			count: C.int32_t(v.count), spans: C.int32_t(spans), row_bytes: C.uint32_t(rowBytes), shift: C.uint32_t(v.shift),
			vectors: flag(cols%4 == 0 && v.shift%size == 0 && aligned(16, from, weights)),
		}
		g := grid{threads: [3]int{32 * C.RMG_HC_SIMDGROUPS, 1, 1}}
		g.groups = [3]int{spans, above(v.count, each*C.RMG_HC_SIMDGROUPS), above(rows, tokens)}
		g.work.flops = 2 * float64(rows) * float64(v.count) * float64(n)
		if together {
			g.threads[0], g.groups[1], g.groups[2] = 32*C.RMG_HC_EXPAND_SIMDGROUPS, 1, rows
			dispatch(b, op, by[2], &args, g, to, from, weights, expansion[0], expansion[1], expansion[2])
			continue
		}
		dispatch(b, op, k, &args, g, to, from, weights)
	}
	return memory[wide:], spans
}

// HCMix: see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	c, s := b.check(contract.HCMix(&a)), a.Streams
	var expansion []bind
	if a.Y != nil {
		expansion = []bind{b.operand(&c, "Y"), b.operand(&c, "Post"), b.operand(&c, "Comb")}
		expansion[1].access, expansion[2].access = reads, reads
	}
	parts, spans := b.hcParts(&c, a.Fn, a.Rows, s, expansion...)
	if parts == nil {
		return
	}
	args := C.struct_rmg_hc{
		streams: C.int32_t(s), cols: C.int32_t(a.Cols), products: C.int32_t(a.Fn.Rows), spans: C.int32_t(spans),
		iterations: C.int32_t(a.Iterations), eps: C.float(a.Eps), rms_eps: C.float(a.RMSEps),
	}
	h, norm, x, weights := b.operand(&c, "H"), b.operand(&c, "Norm"), b.operand(&c, "X"), b.operand(&c, "Weights")
	h.access = reads
	args.vectors = flag(a.Cols%4 == 0 && aligned(16, h, norm, x))
	if unsafe.SliceData(a.Weights) == unsafe.SliceData(a.Pre) {
		args.own, weights = 1, b.part(&c, "Weights", 0, 0)
	}
	dispatch(b, c.Op, hcMixKernel, &args, lines(a.Rows, threadsFor(a.Cols/4, 256)), between(b, c.Op, parts, a.Rows*spans*(a.Fn.Rows+1), reads),
		b.operand(&c, "Base"), b.operand(&c, "Scale"), b.operand(&c, "Pre"), b.operand(&c, "Post"), b.operand(&c, "Comb"),
		x, h, weights, norm)
}

// HCGate: see kernels.Backend.
func (b *Backend) HCGate(a kernels.HCGateArgs) {
	c := b.check(contract.HCGate(&a))
	args := C.struct_rmg_hc_gate{streams: C.int32_t(a.Streams), cols: C.int32_t(a.Cols), eps: C.float(a.Eps)}
	g := grid{groups: [3]int{a.Streams, a.Rows, 1}, threads: [3]int{32 * C.RMG_HC_GATE_SIMDGROUPS, 1, 1}}
	dispatch(b, c.Op, hcGateKernel, &args, g, b.operand(&c, "H"), b.operand(&c, "KV"), b.operand(&c, "HNorm"), b.operand(&c, "KeyNorm"))
}

// HCHead: see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	c := b.check(contract.HCHead(&a))
	s := a.Streams
	parts, spans := b.hcParts(&c, a.Fn, a.Rows, s)
	if parts == nil {
		return
	}
	args := C.struct_rmg_hc{
		streams: C.int32_t(s), cols: C.int32_t(a.Cols), products: C.int32_t(s), spans: C.int32_t(spans),
		eps: C.float(a.Eps), rms_eps: C.float(a.RMSEps),
	}
	dispatch(b, c.Op, hcHeadKernel, &args, columns(a.Cols, a.Rows, false), b.operand(&c, "Out"), b.operand(&c, "H"),
		between(b, c.Op, parts, a.Rows*spans*(s+1), reads), b.operand(&c, "Base"), b.operand(&c, "Scale"))
}
