package record

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/parallel/cost"
)

// Every op is the inner backend's; while ops are shown, with what its time depends on.

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	if b.each == nil {
		b.inner.Embed(out, w, ids)
		return
	}
	c := contract.Embed(out, w, ids)
	b.each(cost.Op{Kind: kind(c.Op, w), Bytes: float64(len(ids)*w.RowBytes() + c.Bytes())}, func() { b.inner.Embed(out, w, ids) })
}

// MatMul: see kernels.Backend.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	if b.each == nil {
		b.inner.MatMul(x, rows, products...)
		return
	}
	contract.MatMul(x, rows, products...)
	weights := make([]kernels.Weight, len(products))
	for i := range products {
		weights[i] = products[i].W
	}
	b.weighed("MatMul", rows, func() { b.inner.MatMul(x, rows, products...) }, weights...)
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	if b.each == nil {
		b.inner.MatMulGrouped(out, x, rows, w)
		return
	}
	c := contract.MatMulGrouped(out, x, rows, w)
	b.weighed(c.Op, rows, func() { b.inner.MatMulGrouped(out, x, rows, w) }, w)
}

// RMSNorm: see kernels.Backend.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	if b.each == nil {
		b.inner.RMSNorm(out, x, weight, rows, cols, eps)
		return
	}
	b.rows(contract.RMSNorm(out, x, weight, rows, cols), func() { b.inner.RMSNorm(out, x, weight, rows, cols, eps) })
}

// LayerNorm: see kernels.Backend.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	if b.each == nil {
		b.inner.LayerNorm(out, x, weight, bias, rows, cols, eps)
		return
	}
	b.rows(contract.LayerNorm(out, x, weight, bias, rows, cols), func() { b.inner.LayerNorm(out, x, weight, bias, rows, cols, eps) })
}

// RoPE: see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	if b.each == nil {
		b.inner.RoPE(a)
		return
	}
	c := contract.RoPE(&a)
	b.each(cost.Op{Kind: c.Op, Bytes: float64(c.Bytes()), Work: float64(a.Rows * a.Heads * a.RotDim)}, func() { b.inner.RoPE(a) })
}

// Hadamard: see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	if b.each == nil {
		b.inner.Hadamard(x, rows, dim)
		return
	}
	b.rows(contract.Hadamard(x, rows, dim), func() { b.inner.Hadamard(x, rows, dim) })
}

// HCInit: see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	if b.each == nil {
		b.inner.HCInit(h, x, rows, streams, cols)
		return
	}
	b.rows(contract.HCInit(h, x, rows, streams, cols), func() { b.inner.HCInit(h, x, rows, streams, cols) })
}

// HCMix: see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	if b.each == nil {
		b.inner.HCMix(a)
		return
	}
	c := contract.HCMix(&a)
	b.weighed(c.Op, a.Rows, func() { b.inner.HCMix(a) }, a.Fn)
}

// HCCollapse: see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	if b.each == nil {
		b.inner.HCCollapse(out, h, pre, rows, streams, cols)
		return
	}
	b.rows(contract.HCCollapse(out, h, pre, rows, streams, cols), func() { b.inner.HCCollapse(out, h, pre, rows, streams, cols) })
}

// HCExpand: see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	if b.each == nil {
		b.inner.HCExpand(h, y, post, comb, rows, streams, cols)
		return
	}
	b.rows(contract.HCExpand(h, y, post, comb, rows, streams, cols), func() { b.inner.HCExpand(h, y, post, comb, rows, streams, cols) })
}

// HCHead: see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	if b.each == nil {
		b.inner.HCHead(a)
		return
	}
	c := contract.HCHead(&a)
	b.weighed(c.Op, a.Rows, func() { b.inner.HCHead(a) }, a.Fn)
}

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	if b.each == nil {
		b.inner.StoreKV(ring, x, rows, cols, pos, ringRows)
		return
	}
	b.rows(contract.StoreKV(ring, x, rows, cols, pos, ringRows), func() { b.inner.StoreKV(ring, x, rows, cols, pos, ringRows) })
}

// Compress: see kernels.Backend.
func (b *Backend) Compress(a kernels.CompressArgs) {
	if b.each == nil {
		b.inner.Compress(a)
		return
	}
	c := contract.Compress(&a)
	each, entries := a.Ratio, (a.Pos+a.Rows)/a.Ratio-a.Pos/a.Ratio // positions of an entry
	if a.Overlap {
		each *= 2
	}
	b.each(cost.Op{Kind: c.Op, Bytes: float64(c.Bytes()), Work: float64(entries * each * a.Dim)}, func() { b.inner.Compress(a) })
}

// IndexTopK: see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	if b.each == nil {
		b.inner.IndexTopK(a)
		return
	}
	c := contract.IndexTopK(&a)
	b.each(cost.Op{Kind: c.Op, Bytes: float64(c.Bytes()), Work: entries(&a) * float64(a.Heads*a.Dim)}, func() { b.inner.IndexTopK(a) })
}

// Attend: see kernels.Backend.
func (b *Backend) Attend(a kernels.AttendArgs) {
	if b.each == nil {
		b.inner.Attend(a)
		return
	}
	c := contract.Attend(&a)
	b.each(cost.Op{Kind: c.Op, Bytes: float64(c.Bytes()), Work: keys(&a) * float64(a.Heads*(a.HeadDim+a.ValueDim))}, func() { b.inner.Attend(a) })
}

// Route: see kernels.Backend.
func (b *Backend) Route(a kernels.RouteArgs) {
	if b.each == nil {
		b.inner.Route(a)
		return
	}
	b.rows(contract.Route(&a), func() { b.inner.Route(a) })
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	if b.each == nil {
		b.inner.ExpertMask(weights, ids, n, start, end)
		return
	}
	b.rows(contract.ExpertMask(weights, ids, n), func() { b.inner.ExpertMask(weights, ids, n, start, end) })
}

// ExpertCompact: see kernels.Backend.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	if b.each == nil {
		b.inner.ExpertCompact(out, ids, rows, used, experts, start, end)
		return
	}
	b.rows(contract.ExpertCompact(out, ids, rows, used, experts, start, end), func() { b.inner.ExpertCompact(out, ids, rows, used, experts, start, end) })
}

// ExpertGateUp: see kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	if b.each == nil {
		b.inner.ExpertGateUp(mid, x, gate, up, clamp, a)
		return
	}
	c := contract.ExpertGateUp(mid, x, gate, up, &a)
	b.experts(c.Op, &a, func() { b.inner.ExpertGateUp(mid, x, gate, up, clamp, a) }, gate, up)
}

// ExpertDown: see kernels.Backend.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	if b.each == nil {
		b.inner.ExpertDown(out, mid, down, a)
		return
	}
	c := contract.ExpertDown(out, mid, down, &a)
	b.experts(c.Op, &a, func() { b.inner.ExpertDown(out, mid, down, a) }, down)
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int, rounded bool) {
	if b.each == nil {
		b.inner.SumSlots(out, slots, rows, used, cols, rounded)
		return
	}
	b.rows(contract.SumSlots(out, slots, rows, used, cols), func() { b.inner.SumSlots(out, slots, rows, used, cols, rounded) })
}

// SwiGLU: see kernels.Backend.
func (b *Backend) SwiGLU(out, gate, up []float32, n int, clamp float32) {
	if b.each == nil {
		b.inner.SwiGLU(out, gate, up, n, clamp)
		return
	}
	b.rows(contract.SwiGLU(out, gate, up, n), func() { b.inner.SwiGLU(out, gate, up, n, clamp) })
}

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	if b.each == nil {
		b.inner.Add(out, x, y, n)
		return
	}
	b.rows(contract.Add(out, x, y, n), func() { b.inner.Add(out, x, y, n) })
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	if b.each == nil {
		b.inner.ToFloat16(out, x, n)
		return
	}
	b.rows(contract.ToFloat16(out, x, n), func() { b.inner.ToFloat16(out, x, n) })
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	if b.each == nil {
		b.inner.FromFloat16(out, x, n)
		return
	}
	b.rows(contract.FromFloat16(out, x, n), func() { b.inner.FromFloat16(out, x, n) })
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	if b.each == nil {
		b.inner.Clear(x, n)
		return
	}
	b.rows(contract.Clear(x, n), func() { b.inner.Clear(x, n) })
}

// Gather: see kernels.Backend.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	if b.each == nil {
		b.inner.Gather(out, x, rows, cols)
		return
	}
	b.rows(contract.Gather(out, x, rows, cols), func() { b.inner.Gather(out, x, rows, cols) })
}

// CopyColumns: see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	if b.each == nil {
		b.inner.CopyColumns(out, x, rows, cols, outCols, xCols)
		return
	}
	b.rows(contract.CopyColumns(out, x, rows, cols, outCols, xCols), func() { b.inner.CopyColumns(out, x, rows, cols, outCols, xCols) })
}
