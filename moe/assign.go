package moe

import (
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// assignment says which rank computes each slot of a layer of a step.
type assignment struct {
	assigner *assign.Assigner
	copies   bool           // some experts are on several ranks
	waits    bool           // a rank waits for the choice, so copies serve only steps that are divided by rows
	own      parallel.Range // the experts of this rank
	held     parallel.Range // a range that has its copies too
	local    []int32        // with copies [MaxTokens*Used] the id of each slot that this rank computes, else -1
	to       []uint8        // [MaxTokens*Used] rank of each slot
	loads    []assign.Load  // [Size] of the layer; nil before they are known
}

// join makes the assignment of a placement.
func (a *assignment) join(f *Forward, p parallel.Placement, rank int) error {
	n := f.shape.MaxTokens * f.shape.Used
	a.assigner, a.waits, a.to = p.Assigner(f.shape.Experts), p.Waits(), make([]uint8, n)
	a.copies = a.assigner.Copies()
	a.own, a.held = p[rank].Experts, p[rank].Held()
	f.owned = a.own
	if !a.copies {
		return nil
	}
	return allocAt(f.b, true, &a.local, n)
}

// serve reports whether copies serve the step.
func (a *assignment) serve(f *Forward) bool { return a.copies && (!a.waits || f.cut != nil) }

// assign decides which rank computes each slot of the step. If copies serve it reads the ids
// of the chosen experts, so it waits for the router; if not, it does nothing before settle.
func (f *Forward) assign(rows int) error {
	if f.exchange == nil {
		return nil
	}
	a := &f.exchange.assignment
	a.loads = nil
	if !a.serve(f) {
		return nil
	}
	f.owned = a.held
	if err := f.b.Flush(); err != nil {
		return err
	}
	a.settle(f, rows)
	for slot, r := range a.to[:rows*f.shape.Used] {
		a.local[slot] = -1
		if int(r) == f.exchange.rank {
			a.local[slot] = f.ids[slot]
		}
	}
	return nil
}

// settle fills to and loads unless it has done so for this layer. The ids must have been
// flushed.
func (a *assignment) settle(f *Forward, rows int) {
	if a.loads == nil {
		a.loads = f.rule().Assign(a.to, f.layer, f.ids[:rows*f.shape.Used], f.shape.Used)
	}
}

// rule is how the slots of the step are assigned.
func (f *Forward) rule() assign.Rule {
	a := &f.exchange.assignment
	r := assign.Rule{By: a.assigner}
	switch {
	case !a.serve(f):
	case f.reduce == parallel.Exact:
		r.How = assign.Together
	default: // with Sum the bits of a row depend on which of its terms a rank adds up
		r.How = assign.ByRow
	}
	return r
}

// Rule is how the slots of the last step were assigned to the ranks of the group, and this
// rank; false without a group.
func (f *Forward) Rule() (rule assign.Rule, rank int, grouped bool) {
	if f.exchange == nil {
		return assign.Rule{}, 0, false
	}
	return f.rule(), f.exchange.rank, true
}

// localIDs are the ids by which the ops of this rank find its slots.
func (f *Forward) localIDs() []int32 {
	if f.exchange == nil || !f.exchange.serve(f) {
		return f.ids
	}
	return f.exchange.local
}
