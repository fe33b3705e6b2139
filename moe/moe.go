// Package moe is the mixture of experts of a layer, divided among ranks: routing, the forward pass of a rank's routed
// experts and of its part of the shared expert, and the choice of the numbers that package parallel combines with those
// of other ranks.
//
// NewForward makes a rank's Forward, and Join makes it part of a group. For each step call StartStep, then Begin and
// Finish for each layer; Digest then shows whether all ranks chose the same experts.
package moe

import (
	"cmp"
	"context"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/parallel"
)

// Layer holds the weights and constants of one layer's routed experts.
type Layer struct {
	Router kernels.Weight // [Experts][D]
	Bias   []float32      // [Experts] added to the scores for the choice only; nil for a layer routed by token id
	Table  []int32        // [vocabulary][Used], nil for a layer routed by score
	Gate   kernels.Weight // Experts x [F][D]
	Up     kernels.Weight // Experts x [F][D]
	Down   kernels.Weight // Experts x [D][F]
	Clamp  float32        // limit of SwiGLU's inputs, 0 for none
	Score  kernels.Score  // of an expert, from the router's logits
	// Groups is the number of groups of experts, 1 or 0 for none. A token may choose from GroupsUsed of them;
	// GroupScore is the score of a group.
	Groups, GroupsUsed int
	GroupScore         kernels.GroupScore
	Norm               bool    // divide a token's router weights by their sum
	Scale              float32 // factor of the router weights, after Norm

	// The shared expert, which every token uses; none if SharedFF is 0.
	SharedGate  kernels.Weight // [SharedFF][D]
	SharedUp    kernels.Weight // [SharedFF][D]
	SharedDown  kernels.Weight // [D][SharedFF]
	SharedClamp float32        // limit of SwiGLU's inputs, 0 for none
}

// Shape has the sizes that the scratch memory of a Forward depends on.
type Shape struct {
	Embd      int // D, width of a row of activations
	FF        int // F, width of an expert
	Experts   int // of a layer, on all ranks
	Used      int // selected experts of a token
	SharedFF  int // width of the shared expert, 0 for none
	Segments  int // equal parts of SharedFF that ranks own; with Exact their outputs are terms of the sum
	MaxTokens int // most rows of a Begin
}

// Forward runs the routed experts of one rank. It owns scratch memory on its
// backend. One goroutine uses it.
type Forward struct {
	b        kernels.Backend
	shape    Shape
	owned    parallel.Range // routed experts; with copies a range that has them too
	shared   parallel.Range // segments of the shared expert
	reduce   parallel.Reduce
	meter    *parallel.Meter
	exchange *exchange      // nil without other ranks
	exact    *parallel.Sums // with Exact

	logits  []float32 // [MaxTokens][Experts]
	ids     []int32   // [MaxTokens][Used]
	weights []float32 // [MaxTokens][Used]
	offsets []int32   // [Experts+1] first slot of each expert in slots
	slots   []int32   // [MaxTokens*Used] slots grouped by local expert
	mid     []float32 // [MaxTokens*Used][F] after gate and up
	outs    []float32 // [MaxTokens*Used][D] after down, or where ExpertDown has them before their sum

	gate     []float32 // [MaxTokens][SharedFF] of the shared expert
	up       []float32 // [MaxTokens][SharedFF]
	sum      []float32 // [MaxTokens][D] its output, or this rank's part, with Sum
	segments []float32 // [MaxTokens*Segments][D] outputs of its segments, with Exact

	// Of the Begin that waits for its Finish.
	pending int // rows
	cut     []parallel.Range
	layer   int
	args    kernels.ExpertArgs
	down    kernels.Weight

	digests []uint32 // [layers] of this step
	popular popular
	off     defences
}

// defences switches off the three ways that keep remote experts out of the local sum. Each is sufficient alone, so
// tests switch the others off.
type defences struct {
	mask    bool // do not zero the router weights of remote experts
	compact bool // do not drop their slots from the groups
	zero    bool // let gate and up treat them as local instead of zeroing their rows of mid
}

// NewForward allocates the scratch memory. Everything is local until Join. meter counts the layers. An error comes from
// the backend and means that memory has run out.
func NewForward(b kernels.Backend, s Shape, reduce parallel.Reduce, meter *parallel.Meter) (*Forward, error) {
	f := &Forward{b: b, shape: s, reduce: reduce, meter: meter,
		owned: parallel.Range{End: s.Experts}, shared: parallel.Range{End: s.Segments}}
	n, onHost := s.MaxTokens*s.Used, kernels.HostOf(b).Experts
	err := cmp.Or(
		alloc(b, &f.logits, s.MaxTokens*s.Experts),
		allocAt(b, true, &f.ids, n),
		allocAt(b, true, &f.weights, n),
		allocAt(b, onHost, &f.offsets, s.Experts+1),
		allocAt(b, onHost, &f.slots, n),
		allocAt(b, onHost, &f.mid, n*s.FF),
		allocAt(b, onHost, &f.outs, n*s.Embd),
		alloc(b, &f.gate, s.MaxTokens*s.SharedFF),
		alloc(b, &f.up, s.MaxTokens*s.SharedFF),
		alloc(b, &f.sum, s.sums(reduce)),
		alloc(b, &f.segments, s.segmentOutputs(reduce)),
	)
	if err == nil && reduce == parallel.Exact {
		f.exact, err = parallel.NewSums(b, s.Embd, s.MaxTokens, meter.For(parallel.ForExperts))
	}
	if err != nil {
		f.Free()
		return nil, fmt.Errorf("scratch memory of the experts: %w", err)
	}
	return f, nil
}

// sums and segmentOutputs return the lengths of sum and segments.
func (s Shape) sums(how parallel.Reduce) int {
	if s.SharedFF == 0 || how == parallel.Exact {
		return 0
	}
	return s.MaxTokens * s.Embd
}

func (s Shape) segmentOutputs(how parallel.Reduce) int {
	if how != parallel.Exact {
		return 0
	}
	return s.MaxTokens * s.Segments * s.Embd
}

// ScratchBytes returns the bytes that NewForward allocates for a shape.
func ScratchBytes(s Shape, how parallel.Reduce) int64 {
	n, exact := int64(s.MaxTokens)*int64(s.Used), int64(0)
	if how == parallel.Exact {
		exact = parallel.SumsBytes(s.Embd, s.MaxTokens)
	}
	return exact + 4*(int64(s.MaxTokens)*int64(s.Experts)+3*n+int64(s.Experts)+1+n*int64(s.FF)+n*int64(s.Embd)+
		2*int64(s.MaxTokens)*int64(s.SharedFF)+int64(s.sums(how))+int64(s.segmentOutputs(how)))
}

// StartStep must come before the first Begin of a step; it resets the digests.
// layers is how many layers the step will run.
func (f *Forward) StartStep(layers int) {
	f.digests = append(f.digests[:0], make([]uint32, layers)...)
	f.popular.forget()
}

// Begin routes input [rows][D] in the layer of the given number, encodes the local experts and, in a group, flushes and
// starts the exchange of their outputs. tokens [rows] are the token ids, for a layer that is routed by token id. If
// every rank computes the whole shared expert, Begin encodes it after that, so that it overlaps with the exchange; a
// divided shared expert is part of the exchange. After a Begin without an error, the caller must call Finish. Errors
// name the layer and come from the backend or the group.
//
// cut [Size] divides the rows: each rank has computed its own rows of input, in their places. Begin first gathers the
// rows of the other ranks, and Finish gives a rank only its own rows. cut is nil if every rank has all rows and gets
// all. The outputs of a row have the same bits either way; the gathered rows of input have the same bits only if they
// travel as float32.
func (f *Forward) Begin(ctx context.Context, layer int, l *Layer, input []float32, tokens []int32, rows int, cut []parallel.Range) error {
	f.pending, f.layer, f.cut = rows, layer, cut
	if err := f.begin(ctx, l, input, tokens); err != nil {
		f.pending = 0
		return fmt.Errorf("layer %d: %w", layer, err)
	}
	f.b.Submit()
	return nil
}

func (f *Forward) begin(ctx context.Context, l *Layer, input []float32, tokens []int32) error {
	rows := f.pending
	if f.exchange != nil {
		f.owned = f.exchange.own // the step before may have had copies
	}
	if f.cut == nil {
		f.route(l, input, tokens, f.own())
	} else if err := f.gatherRows(ctx, l, input, tokens); err != nil {
		return err
	}
	if err := f.assign(rows); err != nil {
		return err
	}
	if !f.listsWithRoute() {
		f.list(f.localIDs(), rows)
	}
	f.encode(l, input, rows)
	if !f.sumsWithDown() {
		f.encodeDown(nil, nil)
	}
	if f.sharedDivided() && !f.besideRouter() {
		f.encodeShared(l, input, rows)
	}
	if f.exchange != nil {
		if err := f.start(ctx, l); err != nil {
			return err
		}
	}
	if f.shape.SharedFF > 0 && !f.sharedDivided() {
		if own := f.own(); own.Len() > 0 {
			if !f.besideRouter() {
				f.encodeShared(l, input[own.Start*f.shape.Embd:], own.Len())
			}
			f.encodeSharedOutput(l, own.Len())
		}
	}
	return nil
}

// own returns the rows for which this rank needs the output.
func (f *Forward) own() parallel.Range {
	if f.cut == nil {
		return parallel.Range{End: f.pending}
	}
	return f.cut[f.exchange.rank]
}

// sharedDivided reports whether ranks compute parts of the shared expert.
func (f *Forward) sharedDivided() bool { return f.exchange != nil && f.exchange.shared != nil }

// besideRouter reports whether the hidden activations of this rank's segments of the shared expert are computed beside
// the router's logits, from the same rows: in one op, which saves a GPU a stage. A whole shared expert is not if it can
// run during the exchange, or while the host computes the routed experts.
func (f *Forward) besideRouter() bool {
	return f.cut == nil && f.shape.SharedFF > 0 && (f.exchange == nil || f.sharedDivided()) && !kernels.HostOf(f.b).Experts
}

// encodeShared encodes this rank's segments of the shared expert up to its hidden
// activations, gate [rows][own].
func (f *Forward) encodeShared(l *Layer, input []float32, rows int) {
	if f.shared.Len() == 0 {
		return
	}
	f.b.MatMul(input, rows, f.sharedFFN(l).Hidden(f.shared, f.gate, f.up))
}

// encodeSharedOutput encodes the output of this rank's segments of the shared expert: with Exact each of them into
// segments [rows][own][D], otherwise their sum into sum.
func (f *Forward) encodeSharedOutput(l *Layer, rows int) {
	if f.shared.Len() == 0 {
		return
	}
	out, separate := f.sum, f.reduce == parallel.Exact
	if separate {
		out = f.segments
	}
	f.sharedFFN(l).Output(f.b, f.shared, separate, out, f.gate, rows)
}

// sumsWithDown reports whether the op of the last product of the experts also adds up the slots, and the output of the
// shared expert. It is then the last op of the layer, or before the exchange. An exact sum needs the slots, and a host
// that computes the experts need not wait for the shared expert.
func (f *Forward) sumsWithDown() bool {
	return f.reduce == parallel.Sum && !kernels.HostOf(f.b).Experts
}

// sharedFFN returns the shared expert of a layer.
func (f *Forward) sharedFFN(l *Layer) FFN {
	return FFN{Gate: l.SharedGate, Up: l.SharedUp, Down: l.SharedDown, Clamp: l.SharedClamp, Segments: f.shape.Segments}
}

// route encodes the choice of experts of some rows, into ids and weights, and what besideRouter says.
func (f *Forward) route(l *Layer, input []float32, tokens []int32, rows parallel.Range) {
	b, s := f.b, f.shape
	if rows.Len() == 0 { // of rows that are divided
		return
	}
	products := []kernels.Product{{W: l.Router, Out: f.logits}}
	if f.besideRouter() && f.shared.Len() > 0 {
		products = append(products, f.sharedFFN(l).Hidden(f.shared, f.gate, f.up))
	}
	b.MatMul(input[rows.Start*s.Embd:], rows.Len(), products...)
	args := kernels.RouteArgs{
		Logits: f.logits, Bias: l.Bias, Table: l.Table, Tokens: tokens[rows.Start:rows.End],
		IDs: f.ids[rows.Start*s.Used:], Weights: f.weights[rows.Start*s.Used:],
		Rows: rows.Len(), Experts: s.Experts, Used: s.Used, Normalise: l.Norm, Scale: l.Scale,
		Score: l.Score, Groups: l.Groups, GroupsUsed: l.GroupsUsed, GroupScore: l.GroupScore,
	}
	if f.listsWithRoute() {
		args.Lists, args.Start, args.End = f.groups(), f.owned.Start, f.owned.End
	}
	b.Route(args)
}

// listsWithRoute reports whether the op that chooses the experts also masks the weights and groups the slots: not if
// it chooses for some rows only, if copies serve, or if the host computes the experts.
func (f *Forward) listsWithRoute() bool {
	return f.cut == nil && (f.exchange == nil || !f.exchange.serve(f)) && !kernels.HostOf(f.b).Experts && !f.off.mask && !f.off.compact
}

// groups are the slots that this rank computes.
func (f *Forward) groups() kernels.ExpertGroups {
	return kernels.ExpertGroups{Offsets: f.offsets, Slots: f.slots}
}

// list encodes the lists of the slots of the local experts. For a slot that this rank does not compute, ids
// [rows][Used] has an expert outside owned, or -1.
func (f *Forward) list(ids []int32, rows int) {
	b, s := f.b, f.shape
	if !f.off.mask && (f.exchange != nil || f.owned.Len() < s.Experts) { // else no expert is remote
		b.ExpertMask(f.weights, ids, rows*s.Used, f.owned.Start, f.owned.End)
	}
	in := f.owned
	if f.off.compact {
		in = parallel.Range{End: s.Experts}
	}
	b.ExpertCompact(f.groups(), ids, rows, s.Used, s.Experts, in.Start, in.End)
}

// encode encodes the ops of the listed experts up to their hidden activations, see encodeDown.
func (f *Forward) encode(l *Layer, input []float32, rows int) {
	b, s := f.b, f.shape
	// Three defences keep remote experts out of the local sum, each sufficient alone: their router weights are zeroed,
	// their slots are not in the groups, and gate and up, which get only this rank's experts, write zeros into the rows
	// of mid of other slots. The row of a slot outside the groups keeps its old content, because no op reads it.
	// With copies the third keeps out only experts that this rank does not have.
	args := kernels.ExpertArgs{Groups: f.groups(), Weights: f.weights, Rows: rows, Used: s.Used, Experts: s.Experts,
		Start: f.owned.Start, End: f.owned.End}
	if f.off.zero {
		args.Start, args.End = 0, s.Experts
	}
	b.ExpertGateUp(f.mid, input, l.Gate, l.Up, l.Clamp, args)
	f.args, f.down = args, l.Down
}

// encodeDown encodes the outputs of the listed experts: into outs, or with sum [rows][D] the sum of a row's slots, and
// of plus [rows][D] if it is not nil.
func (f *Forward) encodeDown(sum, plus []float32) {
	args := f.args
	args.Sum, args.Plus = sum, plus
	f.b.ExpertDown(f.outs, f.mid, f.down, args)
}

// Finish encodes the combined output of the last Begin, including the shared expert, into out [rows][D], and ends the
// layer on the meter. If the rows are divided, out has this rank's rows. In a group it waits for the exchange; an error
// names the layer and comes from the group. Where ops await data (kernels.Await) the wait, and its error, may be those
// of a later Flush.
func (f *Forward) Finish(ctx context.Context, out []float32) error {
	finish := f.finishSum
	if f.reduce == parallel.Exact {
		finish = f.finishExact
	}
	err := finish(ctx, out)
	f.pending = 0
	if err != nil {
		return fmt.Errorf("layer %d: %w", f.layer, err)
	}
	f.meter.EndLayer(f.layer)
	return nil
}

func (f *Forward) finishSum(ctx context.Context, out []float32) error {
	rows, s := f.own().Len(), f.shape
	if f.exchange == nil && f.sumsWithDown() {
		shared := f.sum
		if s.SharedFF == 0 {
			shared = nil
		}
		f.encodeDown(out, shared)
		return nil
	}
	if f.exchange == nil {
		f.b.SumSlots(out, f.outs, rows, s.Used, s.Embd)
	} else if err := f.exchange.Finish(ctx, out, s.Embd); err != nil {
		return err
	}
	if s.SharedFF > 0 && !f.sharedDivided() {
		f.b.Add(out, out, f.sum, rows*s.Embd)
	}
	return nil
}

func (f *Forward) finishExact(ctx context.Context, out []float32) error {
	rows := f.own().Len()
	if f.exchange == nil {
		f.exact.Set(f.outs, rows, f.shape.Used)
	} else if err := f.exact.Finish(ctx); err != nil {
		return err
	}
	if f.shape.SharedFF > 0 && !f.sharedDivided() {
		f.exact.Add(f.segments, rows, f.shape.Segments)
	}
	f.exact.Round(out, rows)
	return nil
}

// Digest returns a checksum of the choice of experts in each layer [layers] since StartStep. Ranks that chose the same
// experts have equal digests. It is nil without a group and valid until the next StartStep.
func (f *Forward) Digest() []uint32 {
	if f.exchange == nil {
		return nil
	}
	return f.digests
}

// Free releases the memory. The caller keeps the group.
func (f *Forward) Free() {
	f.leave()
	if f.exact != nil {
		f.exact.Free()
	}
	for _, x := range []*[]float32{&f.logits, &f.weights, &f.mid, &f.outs, &f.gate, &f.up, &f.sum, &f.segments} {
		kernels.Release(f.b, *x)
		*x = nil
	}
	for _, x := range []*[]int32{&f.ids, &f.offsets, &f.slots} {
		kernels.Release(f.b, *x)
		*x = nil
	}
}

func alloc[T float32 | int32](b kernels.Backend, p *[]T, n int) error { return allocAt(b, false, p, n) }

// allocAt is alloc of memory that the host reads fast if host is set.
func allocAt[T float32 | int32](b kernels.Backend, host bool, p *[]T, n int) (err error) {
	if host {
		*p, err = kernels.MakeHost[T](b, n)
	} else {
		*p, err = kernels.Make[T](b, n)
	}
	return err
}
