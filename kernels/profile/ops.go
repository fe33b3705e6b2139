package profile

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Every op is the inner backend's, with the bytes it moves: those of weights,
// and those of its operands.

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	c := contract.Embed(out, w, ids)
	b.measure(label("Embed", w), len(ids)*w.RowBytes(), c.Bytes(), func() { b.inner.Embed(out, w, ids) })
}

// MatMul: see kernels.Backend.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	contract.MatMul(x, rows, products...)
	var weights []kernels.Weight
	read, bytes := 0, 0
	for i := range products {
		c := contract.Product(x, rows, &products[i])
		if bytes += c.Operand("out").Bytes(); i == 0 {
			bytes += c.Operand("x").Bytes()
		}
		read += matrix(products[i].W)
		weights = append(weights, products[i].W)
	}
	b.measure(label("MatMul", weights...), read, bytes, func() { b.inner.MatMul(x, rows, products...) })
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	c := contract.MatMulGrouped(out, x, rows, w)
	b.measure(label("MatMulGrouped", w), w.Slices*matrix(w), c.Bytes(), func() { b.inner.MatMulGrouped(out, x, rows, w) })
}

// RMSNorm: see kernels.Backend. Its weight is a tensor of the model.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	c := contract.RMSNorm(out, x, weight, rows, cols)
	read := c.Operand("weight").Bytes()
	b.measure("RMSNorm", read, c.Bytes()-read, func() { b.inner.RMSNorm(out, x, weight, rows, cols, eps) })
}

// LayerNorm: see kernels.Backend. Its weight and bias are tensors of the model.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	c := contract.LayerNorm(out, x, weight, bias, rows, cols)
	read := c.Operand("weight").Bytes() + c.Operand("bias").Bytes()
	b.measure("LayerNorm", read, c.Bytes()-read, func() { b.inner.LayerNorm(out, x, weight, bias, rows, cols, eps) })
}

// RoPE: see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	b.op(contract.RoPE(&a), func() { b.inner.RoPE(a) })
}

// Hadamard: see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	b.op(contract.Hadamard(x, rows, dim), func() { b.inner.Hadamard(x, rows, dim) })
}

// HCInit: see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	b.op(contract.HCInit(h, x, rows, streams, cols), func() { b.inner.HCInit(h, x, rows, streams, cols) })
}

// HCMix: see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	c := contract.HCMix(&a)
	b.measure(c.Op, matrix(a.Fn), c.Bytes(), func() { b.inner.HCMix(a) })
}

// HCCollapse: see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	b.op(contract.HCCollapse(out, h, pre, rows, streams, cols), func() { b.inner.HCCollapse(out, h, pre, rows, streams, cols) })
}

// HCExpand: see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	b.op(contract.HCExpand(h, y, post, comb, rows, streams, cols), func() { b.inner.HCExpand(h, y, post, comb, rows, streams, cols) })
}

// HCHead: see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	c := contract.HCHead(&a)
	b.measure(c.Op, matrix(a.Fn), c.Bytes(), func() { b.inner.HCHead(a) })
}

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	b.op(contract.StoreKV(ring, x, rows, cols, pos, ringRows), func() { b.inner.StoreKV(ring, x, rows, cols, pos, ringRows) })
}

// Compress: see kernels.Backend.
func (b *Backend) Compress(a kernels.CompressArgs) {
	b.op(contract.Compress(&a), func() { b.inner.Compress(a) })
}

// IndexTopK: see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	b.op(contract.IndexTopK(&a), func() { b.inner.IndexTopK(a) })
}

// Attend: see kernels.Backend.
func (b *Backend) Attend(a kernels.AttendArgs) {
	b.op(contract.Attend(&a), func() { b.inner.Attend(a) })
}

// Route: see kernels.Backend.
func (b *Backend) Route(a kernels.RouteArgs) {
	b.op(contract.Route(&a), func() { b.inner.Route(a) })
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	b.op(contract.ExpertMask(weights, ids, n), func() { b.inner.ExpertMask(weights, ids, n, start, end) })
}

// ExpertCompact: see kernels.Backend.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	b.op(contract.ExpertCompact(out, ids, rows, used, experts, start, end),
		func() { b.inner.ExpertCompact(out, ids, rows, used, experts, start, end) })
}

// touched counts the experts with slots to compute, and those slots.
func touched(a *kernels.ExpertArgs) (experts, slots int) {
	for e := a.Start; e < a.End; e++ {
		live := 0
		for _, s := range a.Groups.Slots[a.Groups.Offsets[e]:a.Groups.Offsets[e+1]] {
			if a.Weights[s] != 0 {
				live++
			}
		}
		if live > 0 {
			experts++
		}
		slots += live
	}
	return experts, slots
}

// rowBytes is the bytes of a slot's row in an operand of the routed experts.
func rowBytes(o *contract.Operand, a *kernels.ExpertArgs) int {
	return o.Bytes() / max(1, a.Rows*a.Used)
}

// ExpertGateUp: see kernels.Backend. The groups say which experts and rows of
// mid are touched.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	c := contract.ExpertGateUp(mid, x, gate, up, &a)
	experts, slots := touched(&a)
	rows := c.Operand("x").Bytes() + slots*rowBytes(c.Operand("mid"), &a)
	b.measure(label(c.Op, gate, up), experts*(matrix(gate)+matrix(up)), rows,
		func() { b.inner.ExpertGateUp(mid, x, gate, up, clamp, a) })
}

// ExpertDown: see kernels.Backend.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	c := contract.ExpertDown(out, mid, down, &a)
	experts, slots := touched(&a)
	rows := slots * (rowBytes(c.Operand("mid"), &a) + rowBytes(c.Operand("out"), &a))
	b.measure(label(c.Op, down), experts*matrix(down), rows, func() { b.inner.ExpertDown(out, mid, down, a) })
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int, rounded bool) {
	b.op(contract.SumSlots(out, slots, rows, used, cols), func() { b.inner.SumSlots(out, slots, rows, used, cols, rounded) })
}

// SwiGLU: see kernels.Backend.
func (b *Backend) SwiGLU(out, gate, up []float32, n int, clamp float32) {
	b.op(contract.SwiGLU(out, gate, up, n), func() { b.inner.SwiGLU(out, gate, up, n, clamp) })
}

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	b.op(contract.Add(out, x, y, n), func() { b.inner.Add(out, x, y, n) })
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	b.op(contract.ToFloat16(out, x, n), func() { b.inner.ToFloat16(out, x, n) })
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	b.op(contract.FromFloat16(out, x, n), func() { b.inner.FromFloat16(out, x, n) })
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	b.op(contract.Clear(x, n), func() { b.inner.Clear(x, n) })
}

// Gather: see kernels.Backend.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	b.op(contract.Gather(out, x, rows, cols), func() { b.inner.Gather(out, x, rows, cols) })
}

// CopyColumns: see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	b.op(contract.CopyColumns(out, x, rows, cols, outCols, xCols), func() { b.inner.CopyColumns(out, x, rows, cols, outCols, xCols) })
}
