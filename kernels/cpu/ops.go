//go:build cgo

package cpu

// #include "ops.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// flag is 1 for true.
func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// RMSNorm: see kernels.Backend. Rows are shared out among the threads.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	op := b.check(contract.RMSNorm(out, x, weight, rows, cols))
	b.done(op, C.rm_op_rms_norm(b.pool, f32(out), f32(x), f32(weight), C.int64_t(rows), C.int64_t(cols), C.float(eps)))
}

// LayerNorm: see kernels.Backend. Rows are shared out among the threads.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	b.check(contract.LayerNorm(out, x, weight, bias, rows, cols))
	C.rm_op_layer_norm(b.pool, f32(out), f32(x), f32(weight), f32(bias), C.int64_t(rows), C.int64_t(cols), C.float(eps))
}

// RoPE: see kernels.RoPEArgs. The sines of a row are computed once for all of
// its heads, in double.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	op := b.check(contract.RoPE(&a))
	if a.Norm {
		b.RMSNorm(a.X, a.X, a.NormWeight, a.Rows*a.Heads, a.HeadDim, a.Eps)
	}
	b.done(op, C.rm_op_rope(b.pool, C.rm_rope{
		x: f32(a.X), pos: i32(a.Pos), freqs: f32(a.Freqs),
		rows: C.int64_t(a.Rows), heads: C.int64_t(a.Heads), head_dim: C.int64_t(a.HeadDim), rot_dim: C.int64_t(a.RotDim),
		front: flag(a.Front), halves: flag(a.Halves), inverse: flag(a.Inverse), magnitude: C.float(a.Turn()),
	}))
	if a.Hadamard {
		b.Hadamard(a.X, a.Rows*a.Heads, a.HeadDim)
	}
	if a.Ring != nil {
		b.StoreKV(a.Ring, a.X, a.Rows, a.HeadDim, a.RingPos, a.RingRows)
	}
}

// Hadamard: see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	b.check(contract.Hadamard(x, rows, dim))
	C.rm_op_hadamard(b.pool, f32(x), C.int64_t(rows), C.int64_t(dim))
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int) {
	b.check(contract.SumSlots(out, slots, rows, used, cols))
	C.rm_op_sum_slots(b.pool, f32(out), f32(slots), C.int64_t(rows), C.int64_t(used), C.int64_t(cols))
}

// SumExact: see kernels.Backend.
func (b *Backend) SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) {
	b.check(contract.SumExact(sums, terms, rows, count, cols, add))
	C.rm_op_sum_exact(b.pool, i64(sums), f32(terms), C.int64_t(rows), C.int64_t(count), C.int64_t(cols), flag(add))
}

// RoundSums: see kernels.Backend.
func (b *Backend) RoundSums(out []float32, sums []int64, n int) {
	b.check(contract.RoundSums(out, sums, n))
	C.rm_op_round_sums(b.pool, f32(out), i64(sums), C.int64_t(n))
}

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	b.check(contract.Add(out, x, y, n))
	C.rm_op_add(b.pool, f32(out), f32(x), f32(y), C.int64_t(n))
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	b.check(contract.ToFloat16(out, x, n))
	C.rm_op_to_float16(b.pool, u16(out), f32(x), C.int64_t(n))
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	b.check(contract.FromFloat16(out, x, n))
	C.rm_op_from_float16(b.pool, f32(out), u16(x), C.int64_t(n))
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	b.check(contract.Clear(x, n))
	C.rm_op_clear(b.pool, f32(x), C.int64_t(n))
}

// Gather: see kernels.Backend. An index that is not a row of x is misuse.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	op := b.check(contract.Gather(out, x, rows, cols))
	contract.Rows(op, rows, len(x)/cols)
	C.rm_op_gather(b.pool, f32(out), f32(x), i32(rows), C.int64_t(len(rows)), C.int64_t(cols))
}

// CopyColumns: see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	b.check(contract.CopyColumns(out, x, rows, cols, outCols, xCols))
	C.rm_op_copy_columns(b.pool, f32(out), f32(x), C.int64_t(rows), C.int64_t(cols), C.int64_t(outCols), C.int64_t(xCols))
}

// HCInit: see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	b.check(contract.HCInit(h, x, rows, streams, cols))
	C.rm_op_hc_init(b.pool, f32(h), f32(x), C.int64_t(rows), C.int64_t(streams), C.int64_t(cols))
}

// HCMix: see kernels.HCMixArgs. The products are summed in float32, everything
// after them is computed in double.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	op := b.check(contract.HCMix(&a))
	b.computable(op, a.Fn)
	if a.Y != nil {
		C.rm_op_hc_expand(b.pool, f32(a.H), f32(a.Y), f32(a.Post), f32(a.Comb), C.int64_t(a.Rows), C.int64_t(a.Streams), C.int64_t(a.Cols))
	}
	b.done(op, C.rm_op_hc_mix(b.pool, C.rm_hc_mix{
		h: f32(a.H), fn: cWeight(a.Fn), base: f32(a.Base), scale: f32(a.Scale),
		pre: f32(a.Pre), post: f32(a.Post), comb: f32(a.Comb),
		rows: C.int64_t(a.Rows), streams: C.int64_t(a.Streams), cols: C.int64_t(a.Cols), iterations: C.int64_t(a.Iterations),
		eps: C.float(a.Eps), rms_eps: C.float(a.RMSEps),
	}))
	C.rm_op_hc_collapse(b.pool, f32(a.X), f32(a.H), f32(a.Weights), C.int64_t(a.Rows), C.int64_t(a.Streams), C.int64_t(a.Cols))
	b.done(op, C.rm_op_rms_norm(b.pool, f32(a.X), f32(a.X), f32(a.Norm), C.int64_t(a.Rows), C.int64_t(a.Cols), C.float(a.RMSEps)))
}

// computable panics if CanCompute is false for the type of w.
func (b *Backend) computable(op string, w kernels.Weight) {
	if !b.CanCompute(w.Type) {
		contract.Fail(op, "weight %q has type %s, which this backend cannot multiply", w.Name, w.Type)
	}
}

// HCCollapse: see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	b.check(contract.HCCollapse(out, h, pre, rows, streams, cols))
	C.rm_op_hc_collapse(b.pool, f32(out), f32(h), f32(pre), C.int64_t(rows), C.int64_t(streams), C.int64_t(cols))
}

// HCExpand: see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	b.check(contract.HCExpand(h, y, post, comb, rows, streams, cols))
	C.rm_op_hc_expand(b.pool, f32(h), f32(y), f32(post), f32(comb), C.int64_t(rows), C.int64_t(streams), C.int64_t(cols))
}

// HCGate: see kernels.HCGateArgs. The gates are computed in double, the sums in float32.
func (b *Backend) HCGate(a kernels.HCGateArgs) {
	op := b.check(contract.HCGate(&a))
	b.done(op, C.rm_op_hc_gate(b.pool, C.rm_hc_gate{
		h: f32(a.H), kv: f32(a.KV), h_norm: f32(a.HNorm), key_norm: f32(a.KeyNorm),
		rows: C.int64_t(a.Rows), streams: C.int64_t(a.Streams), cols: C.int64_t(a.Cols), eps: C.float(a.Eps),
	}))
}

// HCHead: see kernels.HCHeadArgs.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	op := b.check(contract.HCHead(&a))
	b.computable(op, a.Fn)
	b.done(op, C.rm_op_hc_head(b.pool, C.rm_hc_head{
		out: f32(a.Out), h: f32(a.H), fn: cWeight(a.Fn), base: f32(a.Base), scale: f32(a.Scale),
		rows: C.int64_t(a.Rows), streams: C.int64_t(a.Streams), cols: C.int64_t(a.Cols),
		eps: C.float(a.Eps), rms_eps: C.float(a.RMSEps),
	}))
}
