package deferred

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Every op checks its arguments, encodes its operands, and is queued with their
// twins.

func (b *Backend) push(op func()) { b.queue = append(b.queue, op) }

// Embed is encoded; see kernels.Backend.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	c := contract.Embed(out, w, ids)
	b.encode(&c)
	out, ids = twin(b, out), twin(b, ids)
	b.push(func() { b.inner.Embed(out, w, ids) })
}

// MatMul is encoded; see kernels.Backend.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	contract.MatMul(x, rows, products...)
	if len(products) == 0 {
		return
	}
	twins := make([]kernels.Product, len(products))
	for i := range products {
		c := contract.Product(x, rows, &products[i])
		b.encode(&c)
		twins[i] = kernels.Product{W: products[i].W, Out: twin(b, products[i].Out)}
	}
	x = twin(b, x)
	b.push(func() { b.inner.MatMul(x, rows, twins...) })
}

// MatMulGrouped is encoded; see kernels.Backend.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	c := contract.MatMulGrouped(out, x, rows, w)
	b.encode(&c)
	out, x = twin(b, out), twin(b, x)
	b.push(func() { b.inner.MatMulGrouped(out, x, rows, w) })
}

// RMSNorm is encoded; see kernels.Backend.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	c := contract.RMSNorm(out, x, weight, rows, cols)
	b.encode(&c)
	out, x, weight = twin(b, out), twin(b, x), twin(b, weight)
	b.push(func() { b.inner.RMSNorm(out, x, weight, rows, cols, eps) })
}

// LayerNorm is encoded; see kernels.Backend.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	c := contract.LayerNorm(out, x, weight, bias, rows, cols)
	b.encode(&c)
	out, x, weight, bias = twin(b, out), twin(b, x), twin(b, weight), twin(b, bias)
	b.push(func() { b.inner.LayerNorm(out, x, weight, bias, rows, cols, eps) })
}

// RoPE is encoded; see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	c := contract.RoPE(&a)
	b.encode(&c)
	a.X, a.Pos, a.Freqs = twin(b, a.X), twin(b, a.Pos), twin(b, a.Freqs)
	b.push(func() { b.inner.RoPE(a) })
}

// Hadamard is encoded; see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	c := contract.Hadamard(x, rows, dim)
	b.encode(&c)
	x = twin(b, x)
	b.push(func() { b.inner.Hadamard(x, rows, dim) })
}

// HCInit is encoded; see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	c := contract.HCInit(h, x, rows, streams, cols)
	b.encode(&c)
	h, x = twin(b, h), twin(b, x)
	b.push(func() { b.inner.HCInit(h, x, rows, streams, cols) })
}

// HCMix is encoded; see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	c := contract.HCMix(&a)
	b.encode(&c)
	a.H, a.Base, a.Scale = twin(b, a.H), twin(b, a.Base), twin(b, a.Scale)
	a.Pre, a.Post, a.Comb = twin(b, a.Pre), twin(b, a.Post), twin(b, a.Comb)
	b.push(func() { b.inner.HCMix(a) })
}

// HCCollapse is encoded; see kernels.Backend.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	c := contract.HCCollapse(out, h, pre, rows, streams, cols)
	b.encode(&c)
	out, h, pre = twin(b, out), twin(b, h), twin(b, pre)
	b.push(func() { b.inner.HCCollapse(out, h, pre, rows, streams, cols) })
}

// HCExpand is encoded; see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	c := contract.HCExpand(h, y, post, comb, rows, streams, cols)
	b.encode(&c)
	h, y, post, comb = twin(b, h), twin(b, y), twin(b, post), twin(b, comb)
	b.push(func() { b.inner.HCExpand(h, y, post, comb, rows, streams, cols) })
}

// HCHead is encoded; see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	c := contract.HCHead(&a)
	b.encode(&c)
	a.Out, a.H, a.Base, a.Scale = twin(b, a.Out), twin(b, a.H), twin(b, a.Base), twin(b, a.Scale)
	b.push(func() { b.inner.HCHead(a) })
}

// StoreKV is encoded; see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	c := contract.StoreKV(ring, x, rows, cols, pos, ringRows)
	b.encode(&c)
	ring, x = twin(b, ring), twin(b, x)
	b.push(func() { b.inner.StoreKV(ring, x, rows, cols, pos, ringRows) })
}

// Compress is encoded; see kernels.Backend.
func (b *Backend) Compress(a kernels.CompressArgs) {
	c := contract.Compress(&a)
	b.encode(&c)
	a.KV, a.Score, a.Norm, a.Freqs = twin(b, a.KV), twin(b, a.Score), twin(b, a.Norm), twin(b, a.Freqs)
	a.RingKV, a.RingScore, a.Cache = twin(b, a.RingKV), twin(b, a.RingScore), twin(b, a.Cache)
	b.push(func() { b.inner.Compress(a) })
}

// IndexTopK is encoded; see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	c := contract.IndexTopK(&a)
	b.encode(&c)
	a.Q, a.HeadWeight, a.Cache, a.Selected = twin(b, a.Q), twin(b, a.HeadWeight), twin(b, a.Cache), twin(b, a.Selected)
	b.push(func() { b.inner.IndexTopK(a) })
}

// Attend is encoded; see kernels.Backend.
func (b *Backend) Attend(a kernels.AttendArgs) {
	c := contract.Attend(&a)
	b.encode(&c)
	a.Q, a.Raw, a.Compressed = twin(b, a.Q), twin(b, a.Raw), twin(b, a.Compressed)
	a.Selected, a.Sinks, a.Out = twin(b, a.Selected), twin(b, a.Sinks), twin(b, a.Out)
	b.push(func() { b.inner.Attend(a) })
}

// Route is encoded; see kernels.Backend. Table is in a mapping and passes as it is.
func (b *Backend) Route(a kernels.RouteArgs) {
	c := contract.Route(&a)
	b.encode(&c)
	a.Logits, a.Bias, a.Tokens = twin(b, a.Logits), twin(b, a.Bias), twin(b, a.Tokens)
	a.IDs, a.Weights = twin(b, a.IDs), twin(b, a.Weights)
	b.push(func() { b.inner.Route(a) })
}

// ExpertMask is encoded; see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	c := contract.ExpertMask(weights, ids, n)
	b.encode(&c)
	weights, ids = twin(b, weights), twin(b, ids)
	b.push(func() { b.inner.ExpertMask(weights, ids, n, start, end) })
}

// ExpertCompact is encoded; see kernels.Backend.
func (b *Backend) ExpertCompact(groups kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	c := contract.ExpertCompact(groups, ids, rows, used, experts, start, end)
	b.encode(&c)
	groups.Offsets, groups.Slots, ids = twin(b, groups.Offsets), twin(b, groups.Slots), twin(b, ids)
	b.push(func() { b.inner.ExpertCompact(groups, ids, rows, used, experts, start, end) })
}

// groups is a with the twins of its slices.
func (b *Backend) groups(a kernels.ExpertArgs) kernels.ExpertArgs {
	a.Groups.Offsets, a.Groups.Slots, a.Weights = twin(b, a.Groups.Offsets), twin(b, a.Groups.Slots), twin(b, a.Weights)
	return a
}

// ExpertGateUp is encoded; see kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	c := contract.ExpertGateUp(mid, x, gate, up, &a)
	b.encode(&c)
	a, mid, x = b.groups(a), twin(b, mid), twin(b, x)
	b.push(func() { b.inner.ExpertGateUp(mid, x, gate, up, clamp, a) })
}

// ExpertDown is encoded; see kernels.Backend.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	c := contract.ExpertDown(out, mid, down, &a)
	b.encode(&c)
	a, out, mid = b.groups(a), twin(b, out), twin(b, mid)
	b.push(func() { b.inner.ExpertDown(out, mid, down, a) })
}

// SumSlots is encoded; see kernels.Backend.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int, rounded bool) {
	c := contract.SumSlots(out, slots, rows, used, cols)
	b.encode(&c)
	out, slots = twin(b, out), twin(b, slots)
	b.push(func() { b.inner.SumSlots(out, slots, rows, used, cols, rounded) })
}

// SwiGLU is encoded; see kernels.Backend.
func (b *Backend) SwiGLU(out, gate, up []float32, n int, clamp float32) {
	c := contract.SwiGLU(out, gate, up, n)
	b.encode(&c)
	out, gate, up = twin(b, out), twin(b, gate), twin(b, up)
	b.push(func() { b.inner.SwiGLU(out, gate, up, n, clamp) })
}

// Add is encoded; see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	c := contract.Add(out, x, y, n)
	b.encode(&c)
	out, x, y = twin(b, out), twin(b, x), twin(b, y)
	b.push(func() { b.inner.Add(out, x, y, n) })
}

// ToFloat16 is encoded; see kernels.Backend.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	c := contract.ToFloat16(out, x, n)
	b.encode(&c)
	out, x = twin(b, out), twin(b, x)
	b.push(func() { b.inner.ToFloat16(out, x, n) })
}

// FromFloat16 is encoded; see kernels.Backend.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	c := contract.FromFloat16(out, x, n)
	b.encode(&c)
	out, x = twin(b, out), twin(b, x)
	b.push(func() { b.inner.FromFloat16(out, x, n) })
}

// Clear is encoded; see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	c := contract.Clear(x, n)
	b.encode(&c)
	x = twin(b, x)
	b.push(func() { b.inner.Clear(x, n) })
}

// Gather is encoded; see kernels.Backend.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	c := contract.Gather(out, x, rows, cols)
	b.encode(&c)
	out, x, rows = twin(b, out), twin(b, x), twin(b, rows)
	b.push(func() { b.inner.Gather(out, x, rows, cols) })
}

// CopyColumns is encoded; see kernels.Backend.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	c := contract.CopyColumns(out, x, rows, cols, outCols, xCols)
	b.encode(&c)
	out, x = twin(b, out), twin(b, x)
	b.push(func() { b.inner.CopyColumns(out, x, rows, cols, outCols, xCols) })
}
