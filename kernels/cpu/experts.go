//go:build cgo

package cpu

/*
#include "rm_cpu.h"
#cgo noescape rm_expert_gate_up
#cgo nocallback rm_expert_gate_up
#cgo noescape rm_expert_down
#cgo nocallback rm_expert_down
*/
import "C"

import "ringmaster/kernels"

// ExpertGateUp computes mid[slot] = Weights[slot]*silu(g)*u for the slots of
// a.Groups, g and u the products of the slot's expert with the token's row of
// x [rows][K]; mid [rows*Used][F]. See kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	const op = "ExpertGateUp"
	b.live(op)
	requireExperts(op, a)
	if a.Rows == 0 {
		return
	}
	b.requireStack(op, gate, a)
	b.requireStack(op, up, a)
	ensure(gate.Rows == up.Rows && gate.Cols == up.Cols, op, "%q is [%d][%d], %q is [%d][%d]",
		gate.Name, gate.Rows, gate.Cols, up.Name, up.Rows, up.Cols)
	requireLen(op, "x", len(x), a.Rows*gate.Cols)
	requireLen(op, "mid", len(mid), a.Rows*a.Used*gate.Rows)
	g, u, e := cWeight(gate), cWeight(up), cExperts(a)
	b.done(op, C.rm_expert_gate_up(b.pool, f32(mid), f32(x), &g, &u, C.float(clamp), &e))
}

// ExpertDown computes out[slot] = down[e]·mid[slot] for the slots of a.Groups
// with a weight other than 0 and sets every other row of out [rows*Used][D] to
// zero.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	const op = "ExpertDown"
	b.live(op)
	requireExperts(op, a)
	if a.Rows == 0 {
		return
	}
	b.requireStack(op, down, a)
	requireLen(op, "mid", len(mid), a.Rows*a.Used*down.Cols)
	requireLen(op, "out", len(out), a.Rows*a.Used*down.Rows)
	d, e := cWeight(down), cExperts(a)
	b.done(op, C.rm_expert_down(b.pool, f32(out), f32(mid), &d, &e))
}

// requireStack checks a stack of one matrix for each expert.
func (b *Backend) requireStack(op string, w kernels.Weight, a kernels.ExpertArgs) {
	b.requireComputable(op, w)
	ensure(w.Slices >= a.Experts, op, "weight %q has %d matrices for %d experts", w.Name, w.Slices, a.Experts)
}

// requireExperts checks the lengths of a and every number in its groups: the C
// side uses them as indices.
func requireExperts(op string, a kernels.ExpertArgs) {
	ensure(a.Rows >= 0 && a.Used > 0 && a.Experts > 0, op, "%d rows, %d used, %d experts", a.Rows, a.Used, a.Experts)
	slots := a.Rows * a.Used
	requireLen(op, "Weights", len(a.Weights), slots)
	requireLen(op, "Groups.Offsets", len(a.Groups.Offsets), a.Experts+1)
	offsets := a.Groups.Offsets
	ensure(offsets[0] == 0, op, "Groups.Offsets begin with %d", offsets[0])
	for e := range a.Experts {
		if offsets[e] > offsets[e+1] {
			ensure(false, op, "Groups.Offsets descend at expert %d", e)
		}
	}
	count := int(offsets[a.Experts])
	ensure(count <= slots, op, "Groups hold %d slots of %d", count, slots)
	requireLen(op, "Groups.Slots", len(a.Groups.Slots), count)
	for i, s := range a.Groups.Slots[:count] {
		if s < 0 || int(s) >= slots {
			ensure(false, op, "Groups.Slots[%d] is %d of %d", i, s, slots)
		}
	}
}

// cExperts is a for C.
func cExperts(a kernels.ExpertArgs) C.rm_experts {
	return C.rm_experts{
		offsets: i32(a.Groups.Offsets),
		slots:   i32(a.Groups.Slots),
		weights: f32(a.Weights),
		rows:    C.int64_t(a.Rows),
		used:    C.int64_t(a.Used),
		experts: C.int64_t(a.Experts),
	}
}
