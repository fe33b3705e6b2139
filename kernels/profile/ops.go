package profile

import "ringmaster/kernels"

// Every op is the inner backend's, with the bytes it moves: those of weights,
// and those of rows.

// Embed: see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	b.measure(label("Embed", w), len(ids)*w.RowBytes(), 4*len(ids)*w.Cols, func() { b.inner.Embed(out, w, ids) })
}

// MatMul: see kernels.Backend.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	var weights []kernels.Weight
	read, bytes := 0, 0
	for i, p := range products {
		if i == 0 {
			bytes += 4 * rows * p.W.Cols
		}
		read += matrix(p.W)
		bytes += 4 * rows * p.W.Rows
		weights = append(weights, p.W)
	}
	b.measure(label("MatMul", weights...), read, bytes, func() { b.inner.MatMul(x, rows, products...) })
}

// MatMulGrouped: see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows, groups int, w kernels.Weight) {
	b.measure(label("MatMulGrouped", w), matrix(w), 4*rows*(groups*w.Cols+w.Rows),
		func() { b.inner.MatMulGrouped(out, x, rows, groups, w) })
}

// RMSNorm: see kernels.Backend.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	b.measure("RMSNorm", 4*len(weight), 8*rows*cols, func() { b.inner.RMSNorm(out, x, weight, rows, cols, eps) })
}

// RoPE: see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	b.measure("RoPE", 0, 4*2*a.Rows*a.Heads*a.RotDim, func() { b.inner.RoPE(a) })
}

// Hadamard: see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	b.measure("Hadamard", 0, 4*2*rows*dim, func() { b.inner.Hadamard(x, rows, dim) })
}

// HCInit: see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	b.measure("HCInit", 0, 4*rows*cols*(1+streams), func() { b.inner.HCInit(h, x, rows, streams, cols) })
}

// HCMix: see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	b.measure("HCMix", matrix(a.Fn), 4*a.Rows*a.Streams*a.Cols, func() { b.inner.HCMix(a) })
}

// HCCollapse: see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	b.measure("HCCollapse", 0, 4*rows*cols*(1+streams), func() { b.inner.HCCollapse(out, h, pre, rows, streams, cols) })
}

// HCExpand: see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	b.measure("HCExpand", 0, 4*rows*cols*(1+2*streams), func() { b.inner.HCExpand(h, y, post, comb, rows, streams, cols) })
}

// HCHead: see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	b.measure("HCHead", matrix(a.Fn), 4*a.Rows*a.Cols*(1+a.Streams), func() { b.inner.HCHead(a) })
}

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	b.measure("StoreKV", 0, 6*rows*cols, func() { b.inner.StoreKV(ring, x, rows, cols, pos, ringRows) })
}

// Compress: see kernels.Backend.
func (b *Backend) Compress(a kernels.CompressArgs) {
	width, candidates := a.Dim, a.Ratio
	if a.Overlap {
		width, candidates = 2*a.Dim, 2*a.Ratio
	}
	entries := (a.Pos+a.Rows)/a.Ratio - a.Pos/a.Ratio
	bytes := 4*4*a.Rows*width + entries*a.Dim*(8*candidates+2)
	b.measure("Compress", 0, bytes, func() { b.inner.Compress(a) })
}

// IndexTopK: see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	bytes := 4 * a.Rows * (a.Heads*(a.Dim+1) + a.TopK)
	if n := min((a.Pos+a.Rows)/a.Ratio, len(a.Cache)/a.Dim); n > a.TopK {
		bytes += 2 * n * a.Dim
	}
	b.measure("IndexTopK", 0, bytes, func() { b.inner.IndexTopK(a) })
}

// Attend: see kernels.Backend. Each row of keys is counted once, however many
// tokens see it.
func (b *Backend) Attend(a kernels.AttendArgs) {
	seen := min(a.Window-1, a.Pos) + a.Rows
	if a.Ratio > 0 {
		entries := (a.Pos + a.Rows) / a.Ratio
		if a.Selected != nil {
			entries = min(entries, a.Rows*a.TopK)
		}
		seen += entries
	}
	b.measure("Attend", 0, 2*seen*a.HeadDim+4*2*a.Rows*a.Heads*a.HeadDim, func() { b.inner.Attend(a) })
}

// Route: see kernels.Backend.
func (b *Backend) Route(a kernels.RouteArgs) {
	b.measure("Route", 0, 4*a.Rows*(a.Experts+2*a.Used), func() { b.inner.Route(a) })
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	b.measure("ExpertMask", 0, 8*n, func() { b.inner.ExpertMask(weights, ids, n, start, end) })
}

// ExpertCompact: see kernels.Backend.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	b.measure("ExpertCompact", 0, 4*(2*rows*used+experts), func() { b.inner.ExpertCompact(out, ids, rows, used, experts, start, end) })
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

// ExpertGateUp: see kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	experts, slots := touched(&a)
	b.measure(label("ExpertGateUp", gate, up), experts*(matrix(gate)+matrix(up)), 4*(a.Rows*gate.Cols+slots*gate.Rows),
		func() { b.inner.ExpertGateUp(mid, x, gate, up, clamp, a) })
}

// ExpertDown: see kernels.Backend.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	experts, slots := touched(&a)
	b.measure(label("ExpertDown", down), experts*matrix(down), 4*slots*(down.Cols+down.Rows),
		func() { b.inner.ExpertDown(out, mid, down, a) })
}

// SumSlots: see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int, rounded bool) {
	b.measure("SumSlots", 0, 4*rows*cols*(used+1), func() { b.inner.SumSlots(out, slots, rows, used, cols, rounded) })
}

// SwiGLU: see kernels.Backend.
func (b *Backend) SwiGLU(out, gate, up []float32, n int, clamp float32) {
	b.measure("SwiGLU", 0, 12*n, func() { b.inner.SwiGLU(out, gate, up, n, clamp) })
}

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	b.measure("Add", 0, 12*n, func() { b.inner.Add(out, x, y, n) })
}

// ToFloat16: see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	b.measure("ToFloat16", 0, 6*n, func() { b.inner.ToFloat16(out, x, n) })
}

// FromFloat16: see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	b.measure("FromFloat16", 0, 6*n, func() { b.inner.FromFloat16(out, x, n) })
}

// Clear: see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	b.measure("Clear", 0, 4*n, func() { b.inner.Clear(x, n) })
}

// Gather: see kernels.Backend.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	b.measure("Gather", 0, 8*len(rows)*cols, func() { b.inner.Gather(out, x, rows, cols) })
}
