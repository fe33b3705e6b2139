// Package moe is the routed half of a mixture-of-experts layer: who owns which
// expert, the choice of experts, the forward over the owned ones and the
// combine of their outputs, on one rank or over a group.
package moe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ringmaster/kernels"
)

// Reduce is how the outputs of the selected experts become one sum.
type Reduce uint8

// The ways of Reduce (design: the combine).
const (
	// Sum adds the owned outputs of a token in float32; ranks add their sums.
	Sum Reduce = iota
	// Exact rounds every selected expert's output to half first and adds
	// them in slot order, so the sum is the same however the experts are
	// shared out. An output beyond half's range is not rounded.
	Exact
)

// ParseReduce reads the name of a way: "sum" or "exact".
func ParseReduce(s string) (Reduce, error) {
	switch s {
	case "sum":
		return Sum, nil
	case "exact":
		return Exact, nil
	}
	return Sum, fmt.Errorf("moe: reduce is %q; expected sum or exact", s)
}

func (r Reduce) String() string {
	if r == Exact {
		return "exact"
	}
	return "sum"
}

// Layer holds the weights and numbers of one layer's routed experts.
type Layer struct {
	Router kernels.Weight // [Experts][D]
	Bias   []float32      // [Experts], nil for a layer routed by token id
	Table  []int32        // [vocabulary][Used], nil for a layer routed by score
	Gate   kernels.Weight // Experts x [F][D]
	Up     kernels.Weight // Experts x [F][D]
	Down   kernels.Weight // Experts x [D][F]
	Clamp  float32        // of SwiGLU, 0 for none
	Norm   bool           // divide the weights by their sum
	Scale  float32        // of the weights, after Norm
}

// Shape is what the scratch memory of a Forward depends on.
type Shape struct {
	Embd, FF      int // D, F
	Experts, Used int
	MaxTokens     int
}

// Forward runs the routed experts of one rank. It owns scratch memory on its
// backend and is used by one goroutine, but for LayerStats.
type Forward struct {
	b      kernels.Backend
	shape  Shape
	owned  Range
	reduce Reduce
	now    func() time.Time
	x      *exchange // nil: no other ranks

	logits  []float32 // [MaxTokens][Experts]
	ids     []int32   // [MaxTokens][Used]
	weights []float32 // [MaxTokens][Used]
	offsets []int32   // [Experts+1]
	slots   []int32   // [MaxTokens*Used]
	mid     []float32 // [MaxTokens*Used][F]
	outs    []float32 // [MaxTokens*Used][D]

	// Of a Begin that has not been finished.
	pending int // tokens
	layer   int

	mark    time.Time // when the layer before ended
	digests []uint32  // by layer, of this step
	off     defences

	mu    sync.Mutex // guards stats
	stats []LayerStats
}

// defences are the three ways in which a foreign expert is kept out of the sum.
// Each is sufficient alone; tests switch the others off.
type defences struct {
	mask    bool // its router weight is not zeroed
	compact bool // its slots are not dropped from the groups
	zero    bool // its rows of mid are not zeroed
}

// NewForward allocates the scratch memory for a rank that owns all experts; Join
// changes that. now is the clock of LayerStats, nil for the system's.
func NewForward(b kernels.Backend, s Shape, reduce Reduce, now func() time.Time) (*Forward, error) {
	if now == nil {
		now = time.Now
	}
	f := &Forward{b: b, shape: s, owned: Range{0, s.Experts}, reduce: reduce, now: now}
	n := s.MaxTokens * s.Used
	err := firstError(
		alloc(b, &f.logits, s.MaxTokens*s.Experts),
		alloc(b, &f.ids, n),
		alloc(b, &f.weights, n),
		alloc(b, &f.offsets, s.Experts+1),
		alloc(b, &f.slots, n),
		alloc(b, &f.mid, n*s.FF),
		alloc(b, &f.outs, n*s.Embd),
	)
	if err != nil {
		f.Free()
		return nil, fmt.Errorf("moe: scratch memory: %w", err)
	}
	return f, nil
}

// ScratchBytes is what NewForward allocates for a shape.
func ScratchBytes(s Shape) int64 {
	n := int64(s.MaxTokens) * int64(s.Used)
	return 4 * (int64(s.MaxTokens)*int64(s.Experts) + 3*n + int64(s.Experts) + 1 + n*int64(s.FF) + n*int64(s.Embd))
}

// StartStep comes before the first Begin of a step: digests and times are
// counted from here. layers is how many layers the step will run.
func (f *Forward) StartStep(layers int) {
	f.digests = append(f.digests[:0], make([]uint32, layers)...)
	f.mark = f.now()
	if f.x != nil {
		f.x.seen = f.x.group.Stats()
	}
}

// Begin routes rows tokens x [rows][D] of layer number layer, starts their owned
// experts and, in a group, the exchange of their outputs. tokens [rows] are the
// ids, read by a layer that is routed by token id. The result is collected by
// Finish, which must follow a Begin without an error; what else the layer has to
// compute is best encoded between the two. In a group it flushes. Its error
// names the layer.
func (f *Forward) Begin(ctx context.Context, layer int, l *Layer, x []float32, tokens []int32, rows int) error {
	f.encode(l, x, tokens, rows)
	f.pending, f.layer = rows, layer
	if f.x == nil {
		return nil
	}
	if err := f.start(ctx); err != nil {
		f.pending = 0
		return fmt.Errorf("layer %d: %w", layer, err)
	}
	return nil
}

// encode leaves the outputs of the owned experts in outs.
func (f *Forward) encode(l *Layer, x []float32, tokens []int32, rows int) {
	b, s := f.b, f.shape
	b.MatMul(x, rows, kernels.Product{W: l.Router, Out: f.logits})
	b.Route(kernels.RouteArgs{
		Logits: f.logits, Bias: l.Bias, Table: l.Table, Tokens: tokens,
		IDs: f.ids, Weights: f.weights,
		Rows: rows, Experts: s.Experts, Used: s.Used, Normalise: l.Norm, Scale: l.Scale,
	})
	// Three defences keep a foreign expert out of the sum, each sufficient
	// alone: its weight is zeroed, its slot is not in the groups, and its
	// row of mid is zero.
	if !f.off.mask {
		b.ExpertMask(f.weights, f.ids, rows*s.Used, f.owned.Start, f.owned.End)
	}
	in := f.owned
	if f.off.compact {
		in = Range{0, s.Experts}
	}
	groups := kernels.ExpertGroups{Offsets: f.offsets, Slots: f.slots}
	b.ExpertCompact(groups, f.ids, rows, s.Used, s.Experts, in.Start, in.End)
	args := kernels.ExpertArgs{Groups: groups, Weights: f.weights, Rows: rows, Used: s.Used, Experts: s.Experts,
		Start: f.owned.Start, End: f.owned.End}
	if f.off.zero {
		args.Start, args.End = 0, s.Experts
	} else {
		b.Clear(f.mid, rows*s.Used*s.FF)
	}
	b.ExpertGateUp(f.mid, x, l.Gate, l.Up, l.Clamp, args)
	b.ExpertDown(f.outs, f.mid, l.Down, args)
}

// Finish writes the combined routed output of the last Begin to out [rows][D].
// In a group it waits for the exchange; its error names the layer.
func (f *Forward) Finish(ctx context.Context, out []float32) error {
	rows := f.pending
	f.pending = 0
	if f.x == nil {
		f.b.SumSlots(out, f.outs, rows, f.shape.Used, f.shape.Embd, f.reduce == Exact)
		f.count(0, 0)
		return nil
	}
	repeated, err := f.finish(ctx, out, rows)
	if err != nil {
		return fmt.Errorf("layer %d: %w", f.layer, err)
	}
	f.count(1, repeated)
	return nil
}

// Digest sums up the choice of experts of each layer of the step since
// StartStep, equal on all ranks that chose the same. It is nil without a group,
// where nobody has to agree. It is valid until the next StartStep.
func (f *Forward) Digest() []uint32 {
	if f.x == nil {
		return nil
	}
	return f.digests
}

// Free releases the memory. The group is the caller's.
func (f *Forward) Free() {
	f.leave()
	kernels.Release(f.b, f.logits)
	kernels.Release(f.b, f.ids)
	kernels.Release(f.b, f.weights)
	kernels.Release(f.b, f.offsets)
	kernels.Release(f.b, f.slots)
	kernels.Release(f.b, f.mid)
	kernels.Release(f.b, f.outs)
	f.logits, f.ids, f.weights, f.offsets, f.slots, f.mid, f.outs = nil, nil, nil, nil, nil, nil, nil
}

func alloc[T float32 | int32 | uint16](b kernels.Backend, p *[]T, n int) error {
	x, err := kernels.Make[T](b, n)
	*p = x
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
