package moe

import (
	"context"
	"fmt"
	"hash/crc32"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// exchange combines the outputs of a Forward with those of other ranks.
type exchange struct {
	*parallel.Combiner // nil with Exact
	assignment
	rank   int
	gather *parallel.RowGather
	shared []parallel.Range // [Size] its segments of the shared expert; nil if each has all
}

// ExchangeBytes returns the bytes that Join allocates for a placement among more than one
// rank.
func ExchangeBytes(s Shape, how parallel.Reduce, wire parallel.Wire, p parallel.Placement) int64 {
	bytes := parallel.CombinerBytes(parallel.SumOp(p.DividesRows()), wire, s.MaxTokens*s.Embd)
	if how == parallel.Exact {
		bytes = parallel.SumsJoinBytes(s.Embd, s.MaxTokens, len(p), p.DividesRows())
	}
	if p.Copies() {
		bytes += CopiesBytes(s)
	}
	return bytes
}

// CopiesBytes is how much more ExchangeBytes are if any rank has copies of experts.
func CopiesBytes(s Shape) int64 { return 4 * int64(s.MaxTokens*s.Used) }

// Join makes the Forward one rank of a group: it computes its experts and its segments of
// the shared expert in the placement, and every later Begin combines the outputs of all
// ranks. All ranks must join with the same placement and wire. Join may be called again
// between steps, with another group, or with nil for none. A group of one rank is like
// nil. After an error the Forward has no group; the error wraps distributed.ErrArgument
// if the placement does not cover the experts.
func (f *Forward) Join(g *distributed.Group, p parallel.Placement, wire parallel.Wire) error {
	f.leave()
	size := 1
	if g != nil {
		size = g.Size()
	}
	if p != nil {
		if err := parallel.CheckDivision("experts", f.shape.Experts, size, p.Experts()); err != nil {
			return err
		}
	}
	if size == 1 {
		return nil
	}
	s, shared := f.shape, p.Shared()
	if parallel.Replicated(s.Segments, shared) {
		shared = nil
	} else if err := parallel.CheckDivision("shared", s.Segments, size, shared); err != nil {
		return err
	}
	x := &exchange{gather: parallel.NewRowGather(f.b, f.meter.For(parallel.ForExperts)), rank: g.Rank(), shared: shared}
	var err error
	if f.reduce == parallel.Exact {
		err = f.exact.Join(g, p.DividesRows())
	} else {
		x.Combiner, err = parallel.NewCombiner(f.b, g, parallel.SumOp(p.DividesRows()), wire, s.MaxTokens*s.Embd, f.meter.For(parallel.ForExperts))
	}
	if err != nil {
		return err
	}
	f.exchange = x
	x.gather.Join(g)
	if shared != nil {
		f.shared = shared[g.Rank()]
	}
	if err := x.join(f, p, g.Rank()); err != nil {
		f.leave()
		return fmt.Errorf("memory of the assignment of experts: %w", err)
	}
	f.meter.Join(g)
	return nil
}

// leave frees the memory of Join.
func (f *Forward) leave() {
	f.meter.Join(nil)
	if f.exchange == nil {
		return
	}
	if f.reduce == parallel.Exact {
		_ = f.exact.Join(nil, false) // only frees
	} else {
		f.exchange.Free()
	}
	kernels.Release(f.b, f.exchange.local)
	f.exchange, f.owned, f.shared = nil, parallel.Range{End: f.shape.Experts}, parallel.Range{End: f.shape.Segments}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// gatherRows is the part of Begin before the experts if the rows of the step are divided.
// It gathers the input on all ranks while this rank routes its own rows, then gathers the
// ranks' choices.
func (f *Forward) gatherRows(ctx context.Context, l *Layer, input []float32, tokens []int32) error {
	s, own, g := f.shape, f.cut[f.exchange.rank], f.exchange.gather
	field, packer := parallel.FieldOf(input, s.Embd), f.packer(l)
	// outs is free until the experts run.
	packed, each := bytesOf(f.outs), kernels.PackedBytes(s.Embd)
	if packer != nil {
		if err := f.b.Flush(); err != nil {
			return err
		}
		if kernels.ValuesMatter(f.b) {
			packer.PackRows(packed[own.Start*each:], input[own.Start*s.Embd:], own.Len(), s.Embd)
		}
		field = parallel.FieldOf(f.outs, each/4)
	}
	if err := g.Start(ctx, f.cut, field); err != nil {
		return err
	}
	f.route(l, input, tokens, own)
	f.b.Submit()
	if err := g.FinishAnd(ctx, parallel.FieldOf(f.ids, s.Used), parallel.FieldOf(f.weights, s.Used)); err != nil {
		return err
	}
	if packer != nil && kernels.ValuesMatter(f.b) { // this rank's own rows stay unpacked, because the router reads them
		packer.UnpackRows(input, packed, own.Start, s.Embd)
		packer.UnpackRows(input[own.End*s.Embd:], packed[own.End*each:], f.pending-own.End, s.Embd)
	}
	return nil
}

// packer returns the packer of the rows that are gathered around the experts of a layer.
// It is nil if they travel as float32, because a product that reads rows of other ranks
// may need more precision than packed rows keep. All ranks decide the same, because they
// decide by the types of the file, the placement and the backend, which are equal on all
// ranks.
func (f *Forward) packer(l *Layer) kernels.Packer {
	p := kernels.PackerOf(f.b)
	if p == nil {
		return nil
	}
	weights := []kernels.Weight{l.Gate, l.Up, l.SharedGate, l.SharedUp}
	if f.shape.SharedFF == 0 || !f.sharedDivided() { // a rank's own rows
		weights = weights[:2]
	}
	for _, w := range weights {
		if !p.Packs(w.Type) {
			return nil
		}
	}
	return p
}

// bytesOf returns the memory of x.
func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

// start encodes this rank's contribution, starts the exchange, and computes the digest of
// the layer meanwhile.
func (f *Forward) start(ctx context.Context, l *Layer) error {
	start := f.startSum
	if f.reduce == parallel.Exact {
		start = f.startExact
	}
	if err := start(ctx, l); err != nil {
		return err
	}
	f.digest(l)
	return nil
}

// startSum starts the exchange of the float32 sums of this rank's slots and segments.
func (f *Forward) startSum(ctx context.Context, l *Layer) error {
	s, parts, part := f.shape, f.exchange.Parts(), []float32(nil)
	if f.exchange.shared != nil && f.shared.Len() > 0 {
		f.encodeSharedOutput(l, f.pending)
		part = f.sum
	}
	if f.sumsWithDown() {
		f.encodeDown(parts, part)
	} else {
		f.b.SumSlots(parts, f.outs, f.pending, s.Used, s.Embd)
		if part != nil {
			f.b.Add(parts, parts, part, f.pending*s.Embd)
		}
	}
	if f.cut == nil {
		return f.exchange.StartAll(ctx, f.pending*s.Embd)
	}
	return f.exchange.Start(ctx, f.pending*s.Embd, parallel.Counts(f.cut, s.Embd))
}

// startExact starts the exchange of the exact sums of this rank's slots and segments. The
// outputs of remote slots are zeros, which change no sum.
func (f *Forward) startExact(ctx context.Context, l *Layer) error {
	f.exact.Set(f.outs, f.pending, f.shape.Used)
	if f.exchange.shared != nil && f.shared.Len() > 0 {
		f.encodeSharedOutput(l, f.pending)
		f.exact.Add(f.segments, f.pending, f.shared.Len())
	}
	return f.exact.Start(ctx, f.pending, f.cut)
}

// digest adds the choice of experts to the checksum of the layer and counts what each rank
// computes. The ids must have been flushed.
func (f *Forward) digest(l *Layer) {
	f.exchange.settle(f, f.pending)
	f.meter.CountRouted(f.exchange.loads, f.exchange.rank, l.Gate.SliceBytes+l.Up.SliceBytes+l.Down.SliceBytes)
	if f.exchange.rank == 0 {
		f.popular.note(f.layer, f.ids[:f.pending*f.shape.Used], f.shape.Used)
	}
	for len(f.digests) <= f.layer {
		f.digests = append(f.digests, 0)
	}
	f.digests[f.layer] = crc32.Update(f.digests[f.layer], castagnoli, bytesOf(f.ids[:f.pending*f.shape.Used]))
}
