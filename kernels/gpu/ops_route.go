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
// threadgroup memory, about 4000. The lists of one token are written by the dispatch that
// chooses its experts; those of more tokens need all their choices.
func (b *Backend) Route(a kernels.RouteArgs) {
	c := b.check(contract.Route(&a))
	n := a.Rows * a.Used
	args := C.struct_rmg_route{
		rows: C.uint32_t(a.Rows), experts: C.uint32_t(a.Experts), used: C.uint32_t(a.Used),
		score: C.int32_t(a.Score), groups: C.uint32_t(a.Groups), groups_used: C.uint32_t(a.GroupsUsed), group_score: C.int32_t(a.GroupScore),
		biased: flag(a.Bias != nil), normalise: flag(a.Normalise), scale: C.float(a.Scale), start: C.int32_t(a.Start), end: C.int32_t(a.End),
	}
	var views []view
	if vocabulary, row := len(a.Table)/a.Used, 4*a.Used; a.Table != nil && a.Rows > 0 {
		if vocabulary == 0 {
			contract.Fail(c.Op, "Table has no rows")
		}
		args.vocabulary = C.int32_t(vocabulary)
		views = b.pieces(c.Op, "table of experts", uintptr(unsafe.Pointer(unsafe.SliceData(a.Table))), row, row, vocabulary)
	}
	ids, weights, logits := b.operand(&c, "IDs"), b.operand(&c, "Weights"), b.operand(&c, "Logits")
	lists, offsets, slots := a.Lists.Offsets != nil, b.faults(), b.faults()
	if lists {
		offsets, slots = b.operand(&c, "Offsets"), b.operand(&c, "Slots")
	}
	args.lists = flag(lists && a.Rows == 1 && a.Used <= elementThreads && len(views) <= 1)
	if a.Table == nil {
		g := lines(a.Rows, 256)
		g.shared = sharedFloats(2*a.Experts + 2*a.Used + a.Groups)
		dispatch(b, c.Op, routeTopKernel, &args, g, ids, weights, logits, b.operand(&c, "Bias"), offsets, slots)
	}
	for _, v := range views {
		args.first, args.count, args.shift = C.int32_t(v.first), C.int32_t(v.count), C.uint32_t(v.shift)
		g := elements(n)
		g.shared = sharedFloats(a.Used)
		dispatch(b, c.Op, routeTableKernel, &args, g, ids, weights, logits, b.operand(&c, "Tokens"), v.bound(), b.faults(), offsets, slots)
	}
	if !lists || args.lists != 0 {
		return
	}
	ids.access = reads
	if a.Start > 0 || a.End < a.Experts {
		b.mask(c.Op, weights, ids, n, a.Start, a.End)
	}
	b.compact(c.Op, offsets, slots, ids, n, a.Experts, a.Start, a.End)
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	c := b.check(contract.ExpertMask(weights, ids, n))
	b.mask(c.Op, b.operand(&c, "weights"), b.operand(&c, "ids"), n, start, end)
}

func (b *Backend) mask(op string, weights, ids bind, n, start, end int) {
	args := C.struct_rmg_share{slots: C.uint32_t(n), start: C.int32_t(start), end: C.int32_t(end)}
	dispatch(b, op, maskKernel, &args, elements(n), weights, ids)
}

// ExpertCompact: see kernels.Backend. Ids out of range are in no group.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	c := b.check(contract.ExpertCompact(out, ids, rows, used, experts, start, end))
	b.compact(c.Op, b.operand(&c, "Offsets"), b.operand(&c, "Slots"), b.operand(&c, "ids"), rows*used, experts, start, end)
}

func (b *Backend) compact(op string, offsets, slots, ids bind, n, experts, start, end int) {
	args := C.struct_rmg_share{slots: C.uint32_t(n), experts: C.int32_t(experts), start: C.int32_t(start), end: C.int32_t(end)}
	const simdgroups = 4
	dispatch(b, op, compactKernel, &args, lines(above(experts+1, simdgroups), 32*simdgroups), offsets, slots, ids)
}
