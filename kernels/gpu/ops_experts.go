//go:build cgo

package gpu

// #include "args/experts.h"
import "C"

import (
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Kernels by type. With few slots per expert, GEMV: expert_gate_up computes gate and up
// at once, which saves a dispatch, a barrier and the second read of x; expert_gemv
// computes one matrix, as down needs, and expert_sum one with the sums of a token's slots.
// Gate and up of two different types go through expert_gemv one after the other, with gate's products in mid, so that no kernel per
// pair of types is needed; so do those with scales. With many slots, GEMM: expert_gemm
// takes gate and up one after the other as well, because that leaves threadgroup memory to
// larger tiles. The round trip through mid costs 8 bytes per element, little against the work.
var (
	expertGEMVLibrary   = "experts, GEMV"
	expertGEMMLibrary   = "experts, GEMM"
	expertGateUpKernels = kernelsByType(expertGEMVLibrary, "expert_gate_up")
	expertGEMVKernels   = kernelsByType(expertGEMVLibrary, "expert_gemv")
	expertSumKernels    = kernelsByType(expertGEMVLibrary, "expert_sum")
	expertGEMMKernels   = kernelsByType(expertGEMMLibrary, "expert_gemm")
)

// Shapes of the kernels: see their comments.
const (
	expertGateUpRows = 4 * 2 // rows of a threadgroup of expert_gate_up
	expertGEMVRows   = 4 * 4 // of expert_gemv
	expertSumRows    = 4 * 2 // of expert_sum
	expertGEMMRows   = 64    // of expert_gemm
	expertGEMMSlots  = 32
	// Weights and input of a step, padded, and the slots.
	expertGEMMMemory = 4 * ((expertGEMMRows+expertGEMMSlots)*(32+4) + expertGEMMSlots)
)

// sumTokens is the largest number of tokens of expert_sum, which looks for each of their slots
// among all.
const sumTokens = 8

// manySlots is the average number of slots per expert from which GEMM is used. GEMM reads
// an expert's weights once for up to 32 slots but multiplies at least eight, while GEMV
// reads the weights once per slot. The average is over all experts, not the local ones,
// because a slot's result must not depend on where experts are placed.
var manySlots = 4

// expertCall is what the dispatches of an op share.
type expertCall struct {
	b     *Backend
	op    string
	call  *contract.Call
	a     *kernels.ExpertArgs
	slots int
	tiles bool
}

func (b *Backend) expertCall(c *contract.Call, a *kernels.ExpertArgs) expertCall {
	slots := a.Rows * a.Used
	return expertCall{b, c.Op, c, a, slots, slots >= manySlots*a.Experts}
}

// operand binds the operand with the given name.
func (c *expertCall) operand(name string) bind { return c.b.operand(c.call, name) }

// args are the arguments for matrices of w's shape; share is the number of slots
// that share a row of the input.
func (c *expertCall) args(w kernels.Weight, in bind, share int) C.struct_rmg_experts {
	return C.struct_rmg_experts{
		rows: C.uint32_t(w.Rows), cols: C.uint32_t(w.Cols), slots: C.uint32_t(c.slots), share: C.uint32_t(share),
		experts: C.int32_t(c.a.Experts), start: C.int32_t(c.a.Start), end: C.int32_t(c.a.End),
		vectors: flag(w.Cols%4 == 0 && aligned(16, in)),
	}
}

// groups binds the expert groups.
func (c *expertCall) groups() [3]bind {
	return [3]bind{c.operand("Offsets"), c.operand("Slots"), c.operand("Weights")}
}

// views are those of the local matrices of w. Without local matrices it is one empty
// view, because rows may still have to be cleared.
func (c *expertCall) views(w kernels.Weight) []view {
	if !c.b.CanCompute(w.Type) {
		contract.Fail(c.op, "weight %q has type %s, which this backend cannot multiply", w.Name, w.Type)
	}
	if v := c.b.sliceViews(c.op, w, c.a.Start, c.a.End); len(v) > 0 {
		return v
	}
	return []view{{binding: c.b.faults().binding}}
}

// expertView describes a view for the kernels.
func (c *expertCall) expertView(w kernels.Weight, v *view) C.struct_rmg_expert_view {
	return C.struct_rmg_expert_view{
		stride: C.uint64_t(w.SliceBytes), row_bytes: C.uint32_t(w.Stride()), shift: C.uint32_t(v.shift),
		first: C.int32_t(c.a.Start + v.first), scale: -1,
	}
}

// scales binds the scales of a stack and describes them for the kernels.
func (c *expertCall) scales(w kernels.Weight, v *C.struct_rmg_expert_view) bind {
	if len(w.Scales) == 0 {
		return c.b.faults() // not read
	}
	address, bytes := uintptr(unsafe.Pointer(unsafe.SliceData(w.Scales))), 4*len(w.Scales)
	views := c.b.pieces(c.op, w.Name+", scales", address, bytes, bytes, 1)
	if len(views) == 0 {
		return c.b.faults() // the error is recorded: nothing is submitted
	}
	if views[0].shift%4 != 0 {
		contract.Fail(c.op, "scales of weight %q do not begin at a multiple of 4 bytes", w.Name)
	}
	v.scale, v.scale_step = C.int32_t(views[0].shift/4), C.int32_t(w.ScaleStep())
	return views[0].bound()
}

// ExpertGateUp: see kernels.Backend. A slot number out of range is skipped
// and fails the next Flush.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	call := b.check(contract.ExpertGateUp(mid, x, gate, up, &a))
	c := b.expertCall(&call, &a)
	in, out := &input{plain: c.operand("x")}, c.operand("mid")
	switch {
	case gate.Type != up.Type || isPlain(gate.Type) && b.info.Packed || len(gate.Scales)+len(up.Scales) > 0:
	case b.info.Packed && !c.tiles:
		c.packedPair(out, in, gate, up, clamp)
		return
	case !c.tiles:
		c.pairs(expertGateUpKernels[gate.Type], expertGateUpRows, out, in.plain, gate, up, clamp)
		return
	}
	args := c.args(gate, in.plain, a.Used)
	c.products(out, in, gate, args)
	args.glu, args.clamp, args.zero = 1, C.float(clamp), C.RMG_ZERO_MID
	c.products(out, in, up, args)
}

// ExpertDown: see kernels.Backend. Slots of remote experts get rows of zeros, as their
// rows of mid would give. With few tokens their slots are added up without a round trip
// through memory. Weights of remote experts are not read.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	call := b.check(contract.ExpertDown(out, mid, down, &a))
	c := b.expertCall(&call, &a)
	in := &input{plain: c.operand("mid")}
	var plus *bind
	if a.Plus != nil {
		x := c.operand("Plus")
		plus = &x
	}
	if a.Sum != nil && !b.info.Packed && a.Rows <= sumTokens && len(c.views(down)) == 1 {
		c.sum(c.operand("Sum"), in.plain, plus, down)
		return
	}
	args, slots := c.args(down, in.plain, 1), c.operand("out")
	args.zero = C.RMG_ZERO_OUT
	c.products(slots, in, down, args)
	if a.Sum != nil {
		slots.access = reads
		b.sumSlots(c.op, c.operand("Sum"), slots, plus, a.Rows, a.Used, down.Rows)
	}
}

// sum encodes the products of a stack in one view and the sums of a token's slots.
func (c *expertCall) sum(out, in bind, plus *bind, w kernels.Weight) {
	args, v, groups := c.args(w, in, c.a.Used), c.views(w)[0], c.groups()
	args.low, args.high = C.int32_t(c.a.Start), C.int32_t(c.a.Start+v.count)
	args.w = c.expertView(w, &v)
	scales, further := c.scales(w, &args.w), c.b.faults()
	if plus != nil {
		args.plus, further = 1, *plus
	}
	g := lines(above(w.Rows, expertSumRows), 128)
	g.groups[1], g.work = c.a.Rows, c.work(w, c.slots)
	dispatch(c.b, c.op, expertSumKernels[w.Type], &args, g, out, in, groups[0], groups[1], groups[2], v.bound(), c.b.faults(), scales, further)
}

// work is the work of a stack w if all slots are local, with matrices read `times`
// times.
func (c *expertCall) work(w kernels.Weight, times int) work {
	bytes := float64(w.Rows) * float64(w.RowBytes())
	return work{flops: 2 * float64(c.slots) * float64(w.Rows) * float64(w.Cols), weights: float64(times) * bytes}
}

// pairs encodes gate and up at once with a kernel whose threadgroups have `rows` rows, per
// pair of views that share experts. The first dispatch clears rows.
func (c *expertCall) pairs(k *kernel, rows int, mid, in bind, gate, up kernels.Weight, clamp float32) {
	args, groups := c.args(gate, in, c.a.Used), c.groups()
	args.clamp, args.zero = C.float(clamp), C.RMG_ZERO_MID
	g := lines(above(gate.Rows, rows), 128)
	g.groups[1] = c.slots
	g.work = c.work(gate, c.slots).plus(c.work(up, c.slots))
	for _, gv := range c.views(gate) {
		for _, uv := range c.views(up) {
			low, high := max(gv.first, uv.first), min(gv.first+gv.count, uv.first+uv.count)
			if low >= high && gv.count > 0 {
				continue
			}
			args.low, args.high = C.int32_t(c.a.Start+low), C.int32_t(c.a.Start+high)
			args.w, args.up = c.expertView(gate, &gv), c.expertView(up, &uv)
			dispatch(c.b, c.op, k, &args, g,
				c.b.withTables(mid, in, groups[0], groups[1], groups[2], gv.bound(), uv.bound(), c.b.faults())...)
			args.zero = C.RMG_ZERO_NONE
		}
	}
}

// products encodes the products of one stack, per view. The first dispatch clears
// rows, in threadgroups of its own.
func (c *expertCall) products(out bind, x *input, w kernels.Weight, args C.struct_rmg_experts) {
	in, k, g := x.plain, expertGEMVKernels[w.Type], lines(above(w.Rows, expertGEMVRows), 128)
	slots := 1 // of a threadgroup
	switch {
	case c.b.info.Packed:
		in = x.of(c.b, c.op, w.Type, c.slots/int(args.share)*w.Cols)
		k, g, slots = c.packedShape(w)
	case c.tiles:
		k, g, slots = expertGEMMKernels[w.Type], lines(above(w.Rows, expertGEMMRows), 128), expertGEMMSlots
		g.shared = expertGEMMMemory
	}
	groups := c.groups()
	for _, v := range c.views(w) {
		args.low, args.high = C.int32_t(c.a.Start+v.first), C.int32_t(c.a.Start+v.first+v.count)
		args.w = c.expertView(w, &v)
		scales := c.scales(w, &args.w)
		places := c.slots
		g.work = c.work(w, c.slots)
		if slots > 1 {
			// The last tile of every expert may hold a single slot.
			places = (c.slots + (slots-1)*min(v.count, c.slots)) / slots
			g.work = c.work(w, min(places, v.count))
		}
		args.places = C.uint32_t(places)
		g.groups[1] = places
		if args.zero != C.RMG_ZERO_NONE {
			g.groups[1] += above(c.slots, g.groups[0])
		}
		dispatch(c.b, c.op, k, &args, g, c.b.withTables(out, in, groups[0], groups[1], groups[2], v.bound(), c.b.faults(), scales)...)
		args.zero = C.RMG_ZERO_NONE
	}
}
