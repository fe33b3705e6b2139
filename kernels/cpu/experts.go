//go:build cgo

package cpu

/*
#include "cpu.h"
#cgo noescape rm_expert_gate_up
#cgo nocallback rm_expert_gate_up
#cgo noescape rm_expert_down
#cgo nocallback rm_expert_down
*/
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// ExpertGateUp: see kernels.Backend.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	op := b.check(contract.ExpertGateUp(mid, x, gate, up, &a))
	b.computable(op, gate)
	b.computable(op, up)
	contract.Groups(op, &a)
	if a.Rows == 0 {
		return
	}
	g, u, e := cWeight(gate), cWeight(up), cExperts(a)
	b.done(op, C.rm_expert_gate_up(b.pool, f32(mid), f32(x), &g, &u, C.float(clamp), &e))
}

// ExpertDown: see kernels.Backend.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	op := b.check(contract.ExpertDown(out, mid, down, &a))
	b.computable(op, down)
	contract.Groups(op, &a)
	if a.Rows == 0 {
		return
	}
	d, e := cWeight(down), cExperts(a)
	b.done(op, C.rm_expert_down(b.pool, f32(out), f32(mid), &d, &e))
	if a.Sum == nil {
		return
	}
	b.SumSlots(a.Sum, out, a.Rows, a.Used, down.Rows)
	if a.Plus != nil {
		b.Add(a.Sum, a.Sum, a.Plus, a.Rows*down.Rows)
	}
}

// cExperts converts a for C.
func cExperts(a kernels.ExpertArgs) C.rm_experts {
	return C.rm_experts{
		offsets: i32(a.Groups.Offsets),
		slots:   i32(a.Groups.Slots),
		weights: f32(a.Weights),
		rows:    C.int64_t(a.Rows),
		used:    C.int64_t(a.Used),
		experts: C.int64_t(a.Experts),
		start:   C.int64_t(a.Start),
		end:     C.int64_t(a.End),
	}
}
