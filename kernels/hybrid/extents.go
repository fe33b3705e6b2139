package hybrid

import (
	"slices"

	"ringmaster/kernels/contract"
)

// extent is the addresses [begin, end) that an op reads or writes.
type extent struct {
	begin, end uintptr
	written    bool
}

func (e *extent) overlaps(f *extent) bool { return e.begin < f.end && f.begin < e.end }

// extents are those of some ops.
type extents []extent

// of appends the extents of an op.
func (a extents) of(op *contract.Op) extents {
	calls := op.Calls()
	for i := range calls {
		a = a.call(&calls[i])
	}
	return a
}

// call appends the extents of a call.
func (a extents) call(c *contract.Call) extents {
	for i := range c.Operands() {
		o := &c.Operands()[i]
		if o.Len > 0 && o.Extent.Begin < o.Extent.End {
			base := uintptr(o.Base)
			a = append(a, extent{base + uintptr(o.Extent.Begin*o.Size), base + uintptr(o.Extent.End*o.Size), o.Access != contract.Reads})
		}
	}
	return a
}

// conflict reports whether ops with these extents must keep their order: one writes what the
// other reads or writes.
func (a extents) conflict(b extents) bool {
	for i := range a {
		for j := range b {
			if (a[i].written || b[j].written) && a[i].overlaps(&b[j]) {
				return true
			}
		}
	}
	return false
}

// without removes the extents that overlap one that ops with the extents b write.
func (a extents) without(b extents) extents {
	return slices.DeleteFunc(a, func(e extent) bool {
		return slices.ContainsFunc(b, func(f extent) bool { return f.written && e.overlaps(&f) })
	})
}

// at reports whether one of the extents has the address.
func (a extents) at(address uintptr) bool {
	return slices.ContainsFunc(a, func(e extent) bool { return e.begin <= address && address < e.end })
}
