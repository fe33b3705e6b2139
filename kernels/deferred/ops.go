package deferred

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Every op checks its arguments, maps its inputs and then its outputs, and is
// queued.

// Embed is encoded; see kernels.Backend.
func (b *Backend) Embed(dst []float32, w kernels.Weight, ids []int32) {
	contract.Embed(dst, w, ids)
	e := b.encode("Embed")
	i := in(e, "ids", ids, len(ids))
	o := out(e, "out", dst, 0, len(ids)*w.Cols)
	e.run(func() { b.inner.Embed(o, w, i) })
}

// MatMul is encoded; see kernels.Backend.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	contract.MatMul(x, rows, products...)
	if len(products) == 0 {
		return
	}
	e := b.encode("MatMul")
	ix := in(e, "x", x, rows*products[0].W.Cols)
	mapped := make([]kernels.Product, len(products))
	for i, p := range products {
		mapped[i] = kernels.Product{W: p.W, Out: out(e, "Out", p.Out, 0, rows*p.W.Rows)}
	}
	e.run(func() { b.inner.MatMul(ix, rows, mapped...) })
}

// MatMulGrouped is encoded; see kernels.Backend.
func (b *Backend) MatMulGrouped(dst, x []float32, rows, groups int, w kernels.Weight) {
	contract.MatMulGrouped(dst, x, rows, groups, w)
	e := b.encode("MatMulGrouped")
	ix := in(e, "x", x, rows*groups*w.Cols)
	o := out(e, "out", dst, 0, rows*w.Rows)
	e.run(func() { b.inner.MatMulGrouped(o, ix, rows, groups, w) })
}

// RMSNorm is encoded; see kernels.Backend.
func (b *Backend) RMSNorm(dst, x, weight []float32, rows, cols int, eps float32) {
	contract.RMSNorm(dst, x, weight, rows, cols)
	e := b.encode("RMSNorm")
	ix, iw := in(e, "x", x, rows*cols), in(e, "weight", weight, cols)
	o := out(e, "out", dst, 0, rows*cols)
	e.run(func() { b.inner.RMSNorm(o, ix, iw, rows, cols, eps) })
}

// RoPE is encoded; see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	contract.RoPE(&a)
	e := b.encode("RoPE")
	a.Pos, a.Freqs = in(e, "Pos", a.Pos, a.Rows), in(e, "Freqs", a.Freqs, a.RotDim/2)
	a.X = inout(e, "X", a.X, a.Rows*a.Heads*a.HeadDim)
	e.run(func() { b.inner.RoPE(a) })
}

// Hadamard is encoded; see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	contract.Hadamard(x, rows, dim)
	e := b.encode("Hadamard")
	o := inout(e, "x", x, rows*dim)
	e.run(func() { b.inner.Hadamard(o, rows, dim) })
}

// HCInit is encoded; see kernels.Backend.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	contract.HCInit(h, x, rows, streams, cols)
	e := b.encode("HCInit")
	ix := in(e, "x", x, rows*cols)
	o := out(e, "h", h, 0, rows*streams*cols)
	e.run(func() { b.inner.HCInit(o, ix, rows, streams, cols) })
}

// HCMix is encoded; see kernels.Backend.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	contract.HCMix(&a)
	e, s := b.encode("HCMix"), a.Streams
	a.H = in(e, "H", a.H, a.Rows*s*a.Cols)
	a.Base, a.Scale = in(e, "Base", a.Base, (2+s)*s), in(e, "Scale", a.Scale, 3)
	a.Pre, a.Post = out(e, "Pre", a.Pre, 0, a.Rows*s), out(e, "Post", a.Post, 0, a.Rows*s)
	a.Comb = out(e, "Comb", a.Comb, 0, a.Rows*s*s)
	e.run(func() { b.inner.HCMix(a) })
}

// HCCollapse is encoded; see kernels.Backend.
func (b *Backend) HCCollapse(dst, h, pre []float32, rows, streams, cols int) {
	contract.HCCollapse(dst, h, pre, rows, streams, cols)
	e := b.encode("HCCollapse")
	ih, ip := in(e, "h", h, rows*streams*cols), in(e, "pre", pre, rows*streams)
	o := out(e, "out", dst, 0, rows*cols)
	e.run(func() { b.inner.HCCollapse(o, ih, ip, rows, streams, cols) })
}

// HCExpand is encoded; see kernels.Backend.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	contract.HCExpand(h, y, post, comb, rows, streams, cols)
	e := b.encode("HCExpand")
	iy, ip := in(e, "y", y, rows*cols), in(e, "post", post, rows*streams)
	ic := in(e, "comb", comb, rows*streams*streams)
	o := inout(e, "h", h, rows*streams*cols)
	e.run(func() { b.inner.HCExpand(o, iy, ip, ic, rows, streams, cols) })
}

// HCHead is encoded; see kernels.Backend.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	contract.HCHead(&a)
	e := b.encode("HCHead")
	a.H = in(e, "H", a.H, a.Rows*a.Streams*a.Cols)
	a.Base, a.Scale = in(e, "Base", a.Base, a.Streams), in(e, "Scale", a.Scale, 1)
	a.Out = out(e, "Out", a.Out, 0, a.Rows*a.Cols)
	e.run(func() { b.inner.HCHead(a) })
}

// ExpertMask is encoded; see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	contract.ExpertMask(weights, ids, n)
	e := b.encode("ExpertMask")
	i := in(e, "ids", ids, n)
	w := inout(e, "weights", weights, n)
	e.run(func() { b.inner.ExpertMask(w, i, n, start, end) })
}

// ExpertCompact is encoded; see kernels.Backend.
func (b *Backend) ExpertCompact(groups kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	contract.ExpertCompact(groups, ids, rows, used, experts, start, end)
	e := b.encode("ExpertCompact")
	i := in(e, "ids", ids, rows*used)
	// The slots behind the last group keep what they hold.
	in(e, "Slots", groups.Slots, rows*used)
	g := kernels.ExpertGroups{
		Offsets: out(e, "Offsets", groups.Offsets, 0, experts+1), Slots: out(e, "Slots", groups.Slots, 0, rows*used),
	}
	e.run(func() { b.inner.ExpertCompact(g, i, rows, used, experts, start, end) })
}

// expertArgs maps what both halves of the experts read.
func (e *encoder) expertArgs(a kernels.ExpertArgs) kernels.ExpertArgs {
	a.Groups.Offsets = in(e, "Groups.Offsets", a.Groups.Offsets, a.Experts+1)
	a.Groups.Slots = in(e, "Groups.Slots", a.Groups.Slots, a.Rows*a.Used)
	a.Weights = in(e, "Weights", a.Weights, a.Rows*a.Used)
	return a
}

// ExpertGateUp is encoded; see kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	contract.ExpertGateUp(mid, x, gate, up, &a)
	e := b.encode("ExpertGateUp")
	mapped, ix := e.expertArgs(a), in(e, "x", x, a.Rows*gate.Cols)
	m := inout(e, "mid", mid, a.Rows*a.Used*gate.Rows) // slots outside the groups keep their rows
	e.run(func() { b.inner.ExpertGateUp(m, ix, gate, up, clamp, mapped) })
}

// ExpertDown is encoded; see kernels.Backend.
func (b *Backend) ExpertDown(dst, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	contract.ExpertDown(dst, mid, down, &a)
	e := b.encode("ExpertDown")
	mapped, im := e.expertArgs(a), in(e, "mid", mid, a.Rows*a.Used*down.Cols)
	o := out(e, "out", dst, 0, a.Rows*a.Used*down.Rows)
	e.run(func() { b.inner.ExpertDown(o, im, down, mapped) })
}

// SumSlots is encoded; see kernels.Backend.
func (b *Backend) SumSlots(dst, slots []float32, rows, used, cols int, rounded bool) {
	contract.SumSlots(dst, slots, rows, used, cols)
	e := b.encode("SumSlots")
	i := in(e, "slots", slots, rows*used*cols)
	o := out(e, "out", dst, 0, rows*cols)
	e.run(func() { b.inner.SumSlots(o, i, rows, used, cols, rounded) })
}

// SwiGLU is encoded; see kernels.Backend.
func (b *Backend) SwiGLU(dst, gate, up []float32, n int, clamp float32) {
	contract.SwiGLU(dst, gate, up, n)
	e := b.encode("SwiGLU")
	ig, iu := in(e, "gate", gate, n), in(e, "up", up, n)
	o := out(e, "out", dst, 0, n)
	e.run(func() { b.inner.SwiGLU(o, ig, iu, n, clamp) })
}

// Add is encoded; see kernels.Backend.
func (b *Backend) Add(dst, x, y []float32, n int) {
	contract.Add(dst, x, y, n)
	e := b.encode("Add")
	ix, iy := in(e, "a", x, n), in(e, "b", y, n)
	o := out(e, "out", dst, 0, n)
	e.run(func() { b.inner.Add(o, ix, iy, n) })
}

// ToFloat16 is encoded; see kernels.Backend.
func (b *Backend) ToFloat16(dst []uint16, x []float32, n int) {
	contract.ToFloat16(dst, x, n)
	e := b.encode("ToFloat16")
	ix := in(e, "x", x, n)
	o := out(e, "out", dst, 0, n)
	e.run(func() { b.inner.ToFloat16(o, ix, n) })
}

// FromFloat16 is encoded; see kernels.Backend.
func (b *Backend) FromFloat16(dst []float32, x []uint16, n int) {
	contract.FromFloat16(dst, x, n)
	e := b.encode("FromFloat16")
	ix := in(e, "x", x, n)
	o := out(e, "out", dst, 0, n)
	e.run(func() { b.inner.FromFloat16(o, ix, n) })
}

// Clear is encoded; see kernels.Backend.
func (b *Backend) Clear(x []float32, n int) {
	contract.Clear(x, n)
	e := b.encode("Clear")
	o := out(e, "x", x, 0, n)
	e.run(func() { b.inner.Clear(o, n) })
}

// Gather is encoded; see kernels.Backend.
func (b *Backend) Gather(dst, x []float32, rows []int32, cols int) {
	contract.Gather(dst, x, rows, cols)
	e := b.encode("Gather")
	ix, ir := in(e, "x", x, len(x)), in(e, "rows", rows, len(rows))
	o := out(e, "out", dst, 0, len(rows)*cols)
	e.run(func() { b.inner.Gather(o, ix, ir, cols) })
}
