//go:build cgo

package gpu

// #include "args/route.h"
import "C"

import (
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	routeLibrary     = "route"
	routeTopKernel   = newKernel(routeLibrary, "route_top")
	routeTableKernel = newKernel(routeLibrary, "route_table")
	maskKernel       = newKernel(routeLibrary, "expert_mask")
	compactKernel    = newKernel(routeLibrary, "expert_compact")
)

// Route: see kernels.RouteArgs. A token or expert of the table out of range fails
// the next Flush, and so does a selection among more experts than fit into
// threadgroup memory, about 4000.
func (b *Backend) Route(a kernels.RouteArgs) {
	c := b.check(contract.Route(&a))
	n := a.Rows * a.Used
	args := C.struct_rmg_route{
		rows: C.uint32_t(a.Rows), experts: C.uint32_t(a.Experts), used: C.uint32_t(a.Used),
		score: C.int32_t(a.Score), groups: C.uint32_t(a.Groups), groups_used: C.uint32_t(a.GroupsUsed), group_score: C.int32_t(a.GroupScore),
		biased: flag(a.Bias != nil), normalise: flag(a.Normalise), scale: C.float(a.Scale),
	}
	ids, weights, logits := b.operand(&c, "IDs"), b.operand(&c, "Weights"), b.operand(&c, "Logits")
	if a.Table == nil {
		g := lines(a.Rows, 256)
		g.shared = sharedFloats(2*a.Experts + a.Used + a.Groups)
		dispatch(b, c.Op, routeTopKernel, &args, g, ids, weights, logits, b.operand(&c, "Bias"))
		return
	}
	vocabulary, row := len(a.Table)/a.Used, 4*a.Used
	if vocabulary == 0 || a.Rows == 0 {
		if a.Rows > 0 {
			contract.Fail(c.Op, "Table has no rows")
		}
		return
	}
	args.vocabulary = C.int32_t(vocabulary)
	for _, v := range b.pieces(c.Op, "table of experts", uintptr(unsafe.Pointer(unsafe.SliceData(a.Table))), row, row, vocabulary) {
		args.first, args.count, args.shift = C.int32_t(v.first), C.int32_t(v.count), C.uint32_t(v.shift)
		g := lines(above(n, 64), 64)
		dispatch(b, c.Op, routeTableKernel, &args, g, ids, weights, logits, b.operand(&c, "Tokens"), v.bound(), b.faults())
	}
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	c := b.check(contract.ExpertMask(weights, ids, n))
	args := C.struct_rmg_share{slots: C.uint32_t(n), start: C.int32_t(start), end: C.int32_t(end)}
	dispatch(b, c.Op, maskKernel, &args, elements(n), b.operand(&c, "weights"), b.operand(&c, "ids"))
}

// ExpertCompact: see kernels.Backend. Ids out of range are in no group.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	c := b.check(contract.ExpertCompact(out, ids, rows, used, experts, start, end))
	n := rows * used
	args := C.struct_rmg_share{slots: C.uint32_t(n), experts: C.int32_t(experts), start: C.int32_t(start), end: C.int32_t(end)}
	const simdgroups = 4
	dispatch(b, c.Op, compactKernel, &args, lines(above(experts+1, simdgroups), 32*simdgroups),
		b.operand(&c, "Offsets"), b.operand(&c, "Slots"), b.operand(&c, "ids"))
}
