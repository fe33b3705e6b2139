// Package moe is the routed half of a mixture-of-experts layer: who owns which
// expert, the choice of experts, the forward over the owned ones and the
// combine of their outputs.
package moe

import (
	"fmt"

	"ringmaster/kernels"
)

// Reduce is how the outputs of the selected experts become one sum.
type Reduce uint8

// The ways of Reduce (design: the combine).
const (
	// Sum adds the owned outputs of a token in float32.
	Sum Reduce = iota
	// Exact rounds every selected expert's output to half first and adds
	// them in slot order, so the sum is the same however the experts are
	// shared out.
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

// Range is a run of experts [Start, End).
type Range struct{ Start, End int }

// Len is the number of experts in the range.
func (r Range) Len() int { return r.End - r.Start }

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
// backend and is used by one goroutine.
type Forward struct {
	b      kernels.Backend
	shape  Shape
	owned  Range
	reduce Reduce

	logits  []float32 // [MaxTokens][Experts]
	ids     []int32   // [MaxTokens][Used]
	weights []float32 // [MaxTokens][Used]
	offsets []int32   // [Experts+1]
	slots   []int32   // [MaxTokens*Used]
	mid     []float32 // [MaxTokens*Used][F]
	outs    []float32 // [MaxTokens*Used][D]
	pending int       // tokens of a Begin that has not been finished
}

// NewForward allocates the scratch memory for a rank that owns the experts in
// owned.
func NewForward(b kernels.Backend, s Shape, owned Range, reduce Reduce) (*Forward, error) {
	if owned.Start < 0 || owned.Start > owned.End || owned.End > s.Experts {
		return nil, fmt.Errorf("moe: experts %d to %d of %d cannot be owned", owned.Start, owned.End, s.Experts)
	}
	f := &Forward{b: b, shape: s, owned: owned, reduce: reduce}
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

// Begin routes rows tokens x [rows][D] and starts their owned experts. tokens
// [rows] are the ids, read by a layer that is routed by token id.
// The result is collected by Finish; what else the layer has to compute is
// best encoded between the two.
func (f *Forward) Begin(l *Layer, x []float32, tokens []int32, rows int) {
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
	b.ExpertMask(f.weights, f.ids, rows*s.Used, f.owned.Start, f.owned.End)
	groups := kernels.ExpertGroups{Offsets: f.offsets, Slots: f.slots}
	b.ExpertCompact(groups, f.ids, rows, s.Used, s.Experts, f.owned.Start, f.owned.End)
	args := kernels.ExpertArgs{Groups: groups, Weights: f.weights, Rows: rows, Used: s.Used, Experts: s.Experts}
	b.Clear(f.mid, rows*s.Used*s.FF)
	b.ExpertGateUp(f.mid, x, l.Gate, l.Up, l.Clamp, args)
	b.ExpertDown(f.outs, f.mid, l.Down, args)
	f.pending = rows
}

// Finish writes the combined routed output of the last Begin to out [rows][D].
func (f *Forward) Finish(out []float32) {
	f.b.SumSlots(out, f.outs, f.pending, f.shape.Used, f.shape.Embd, f.reduce == Exact)
	f.pending = 0
}

// Free releases the scratch memory.
func (f *Forward) Free() {
	kernels.Release(f.b, f.logits)
	kernels.Release(f.b, f.ids)
	kernels.Release(f.b, f.weights)
	kernels.Release(f.b, f.offsets)
	kernels.Release(f.b, f.slots)
	kernels.Release(f.b, f.mid)
	kernels.Release(f.b, f.outs)
	*f = Forward{b: f.b}
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
