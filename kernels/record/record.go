// Package record is a kernels.Backend around another one that shows each op to a
// function, with what its time depends on. The function decides whether the op runs, so
// that a step can be listed without computing it:
//
//	b := record.Wrap(inner)
//	b.Show(func(op cost.Op, run func()) { ops = append(ops, op) }, false)
package record

import (
	"slices"
	"strings"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/parallel/cost"
)

// Each is shown every op; run runs it. Without a call of run the op has no effect:
// its outputs keep what they hold.
type Each func(op cost.Op, run func())

// Backend shows its ops while it has been told to. Create it with Wrap.
type Backend struct {
	kernels.Backend // the one that gets the ops now: inner, or one that shows them
	inner           kernels.Backend
	each            Each
	chosen          bool // the experts that ops are about are those that ran before
}

// Wrap returns a backend that computes with inner and closes it. It shows no ops yet.
func Wrap(inner kernels.Backend) *Backend { return &Backend{Backend: inner, inner: inner} }

// Show shows all ops to each from now on, nil for none. With chosen, products of routed
// experts are shown with the experts that earlier ops chose, which must have run;
// otherwise with a cost.Chosen. It must not be called between an op and its Flush.
func (b *Backend) Show(each Each, chosen bool) {
	b.Backend, b.each, b.chosen = b.inner, each, chosen
	if each != nil {
		b.Backend = contract.NewEach(b.inner, b.show)
	}
}

// RowsAgree asks the inner backend.
func (b *Backend) RowsAgree() bool { return kernels.RowsAgree(b.inner) }

// Packer is the inner backend's.
func (b *Backend) Packer() kernels.Packer { return kernels.PackerOf(b.inner) }

// Host is the inner backend's.
func (b *Backend) Host() kernels.Host { return kernels.HostOf(b.inner) }

// AllocHost is the inner backend's.
func (b *Backend) AllocHost(n int) ([]byte, error) { return kernels.AllocHost(b.inner, n) }

// Prepare is the inner backend's.
func (b *Backend) Prepare(u kernels.Uses) error { return kernels.Prepare(b.inner, u) }

// Hold is the inner backend's.
func (b *Backend) Hold(used func() ([]kernels.Span, error)) error { return kernels.Hold(b.inner, used) }

// Await is the inner backend's. While ops are shown it waits first, because they may run at
// once.
func (b *Backend) Await(wait func() (changed bool, err error), use func()) error {
	if b.each == nil {
		return kernels.Await(b.inner, wait, use)
	}
	if _, err := wait(); err != nil {
		return err
	}
	use()
	return nil
}

// Reach is the inner backend's. While ops are shown it is Flush, which is shown.
func (b *Backend) Reach() error {
	if b.each == nil {
		return kernels.Reach(b.inner)
	}
	return b.Flush()
}

// weighed describes an op that multiplies rows by weights.
func weighed(op *contract.Op) cost.Op {
	o := cost.Op{Kind: kind(op)}
	for i := range op.Weights {
		w := &op.Weights[i]
		o.Bytes += float64(w.Slices) * float64(w.ElementBytes())
		o.Work += float64(op.Rows) * float64(w.Slices) * float64(w.Rows) * float64(w.Cols)
	}
	return o
}

// experts describes a product of routed experts with some of the weights.
func (b *Backend) experts(op *contract.Op, a *kernels.ExpertArgs) cost.Op {
	o := cost.Op{Kind: kind(op)}
	bytes, work := 0.0, 0.0 // of one expert; of one slot in it
	for i := range op.Weights {
		w := &op.Weights[i]
		bytes += float64(w.ElementBytes())
		work += float64(w.Rows) * float64(w.Cols)
	}
	if b.chosen {
		experts, slots := a.Chosen()
		o.Bytes, o.Work = bytes*float64(experts), work*float64(slots)
	} else {
		o.Chosen = &cost.Chosen{Rows: a.Rows, Used: a.Used, Of: a.Experts, Start: a.Start, End: a.End, Bytes: bytes, Work: work}
	}
	return o
}

// kind is the op and the types of its weights, each once. Columns of a matrix are a kind
// of their own, because their rows lie apart and are read at another rate.
func kind(op *contract.Op) string {
	var types []string
	for _, w := range op.Weights {
		t := w.Type.String()
		if w.Stride() != w.RowBytes() {
			t += " columns"
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return op.Op + " " + strings.Join(types, "+")
}

// keys is how many keys the rows of an attention see in total.
func keys(a *kernels.AttendArgs) (n float64) {
	for t := range a.Rows {
		at := a.Pos + t + 1
		seen := at
		if a.Window > 0 {
			seen = min(at, a.Window)
		}
		switch {
		case a.Ratio == 0:
		case a.Selected != nil:
			seen += min(at/a.Ratio, a.TopK)
		default:
			seen += at / a.Ratio
		}
		n += float64(seen)
	}
	return n
}

// entries is how many compressed entries the rows of an indexer score in total.
func entries(a *kernels.IndexArgs) (n float64) {
	for t := range a.Rows {
		n += float64((a.Pos + t + 1) / a.Ratio)
	}
	return n
}
