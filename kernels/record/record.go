// Package record is a kernels.Backend around another one that shows each op to a
// function, with what its time depends on. The function decides whether the op runs:
// a step whose ops do not run is a list of what it would compute.
package record

import (
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/parallel/cost"
)

// Each is shown every op; run runs it. Without a call of run the op has no effect:
// its outputs keep what they hold.
type Each func(op cost.Op, run func())

// Backend shows its ops while it has been told to. Create it with Wrap.
type Backend struct {
	inner  kernels.Backend
	each   Each // nil: every op runs
	chosen bool // the experts that ops are about are those that ran before
}

var _ kernels.Backend = (*Backend)(nil)

// Wrap returns a backend that computes with inner and closes it. It shows no ops yet.
func Wrap(inner kernels.Backend) *Backend { return &Backend{inner: inner} }

// Show shows all ops to each from now on, nil for none. With chosen the products of
// routed experts are shown with the experts that the ops before, which ran, have
// chosen; else with a cost.Chosen. It must not be called between an op and its Flush.
func (b *Backend) Show(each Each, chosen bool) { b.each, b.chosen = each, chosen }

// Name is the name of the inner backend.
func (b *Backend) Name() string { return b.inner.Name() }

// Alloc allocates on the inner backend.
func (b *Backend) Alloc(n int) ([]byte, error) { return b.inner.Alloc(n) }

// Free frees on the inner backend.
func (b *Backend) Free(mem []byte) { b.inner.Free(mem) }

// Map gives the mapping to the inner backend.
func (b *Backend) Map(mapping []byte) error { return b.inner.Map(mapping) }

// CanCompute asks the inner backend.
func (b *Backend) CanCompute(t gguf.Type) bool { return b.inner.CanCompute(t) }

// RowsAgree asks the inner backend.
func (b *Backend) RowsAgree() bool { return kernels.RowsAgree(b.inner) }

// Packer is the inner backend's.
func (b *Backend) Packer() kernels.Packer { return kernels.PackerOf(b.inner) }

// Submit submits on the inner backend.
func (b *Backend) Submit() { b.inner.Submit() }

// Flush flushes the inner backend.
func (b *Backend) Flush() error { return b.inner.Flush() }

// Close closes the inner backend.
func (b *Backend) Close() error { return b.inner.Close() }

// rows shows an op whose time grows with the bytes that it moves.
func (b *Backend) rows(c contract.Call, run func()) {
	b.each(cost.Op{Kind: c.Op, Bytes: float64(c.Bytes())}, run)
}

// weighed shows an op that multiplies rows by weights.
func (b *Backend) weighed(op string, rows int, run func(), weights ...kernels.Weight) {
	o := cost.Op{Kind: kind(op, weights...)}
	for _, w := range weights {
		o.Bytes += float64(w.Slices) * float64(matrix(w))
		o.Work += float64(rows) * float64(w.Slices) * float64(w.Rows) * float64(w.Cols)
	}
	b.each(o, run)
}

// experts shows a product of routed experts with some of the weights.
func (b *Backend) experts(op string, a *kernels.ExpertArgs, run func(), weights ...kernels.Weight) {
	o := cost.Op{Kind: kind(op, weights...)}
	bytes, work := 0.0, 0.0 // of one expert; of one slot in it
	for _, w := range weights {
		bytes += float64(matrix(w))
		work += float64(w.Rows) * float64(w.Cols)
	}
	if b.chosen {
		experts, slots := touched(a)
		o.Bytes, o.Work = bytes*float64(experts), work*float64(slots)
	} else {
		o.Chosen = &cost.Chosen{Rows: a.Rows, Used: a.Used, Of: a.Experts, Start: a.Start, End: a.End, Bytes: bytes, Work: work}
	}
	b.each(o, run)
}

// kind is the op and the types of its weights, each once; columns of a matrix, whose
// rows lie apart, are read at another rate than rows.
func kind(op string, weights ...kernels.Weight) string {
	var types []string
	for _, w := range weights {
		t := w.Type.String()
		if w.Stride() != w.RowBytes() {
			t += " columns"
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return op + " " + strings.Join(types, "+")
}

// matrix is the bytes of one matrix of w.
func matrix(w kernels.Weight) int { return w.Rows * w.RowBytes() }

// touched counts the experts with slots to compute, and those slots.
func touched(a *kernels.ExpertArgs) (experts, slots int) {
	for e := a.Start; e < a.End; e++ {
		live := 0
		for _, s := range a.Groups.Slots[a.Groups.Offsets[e]:a.Groups.Offsets[e+1]] {
			if a.Weights[s] != 0 {
				live++
			}
		}
		if live > 0 {
			experts++
		}
		slots += live
	}
	return experts, slots
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
