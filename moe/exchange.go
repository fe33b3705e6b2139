package moe

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// exchange combines the outputs of a Forward with those of other ranks. With Sum it is an
// all-reduce, and a part is a rank's sum for a token. With Exact it is an all-gather, and
// a part is the output of one slot (a selected expert of a token) or of one segment of
// the shared expert.
type exchange struct {
	*parallel.Combiner
	assignment
	rank   int
	gather *parallel.RowGather
	shared []parallel.Range // [Size] its segments of the shared expert; nil if each has all

	// With Exact parts are ordered by rank, those of a rank by slot, then by
	// token and segment.
	order  []int32 // [MaxTokens*Used] slot of each of this rank's first parts
	place  []int32 // [MaxTokens*(Used+Segments)] part of each slot, then of each segment
	counts []int   // [Size] numbers that each rank sends
}

// opOf returns the collective for a Reduce, and partsOf the greatest number of parts of a
// step.
func opOf(how parallel.Reduce, p parallel.Placement) parallel.Op {
	if how == parallel.Exact {
		return parallel.AllGather
	}
	return parallel.SumOp(p.DividesRows())
}

func partsOf(s Shape, how parallel.Reduce, divided bool) int {
	switch {
	case how != parallel.Exact:
		return s.MaxTokens
	case divided:
		return s.MaxTokens * (s.Used + s.Segments)
	}
	return s.MaxTokens * s.Used
}

// ExchangeBytes returns the bytes that Join allocates for a placement among more than one
// rank.
func ExchangeBytes(s Shape, how parallel.Reduce, wire parallel.Wire, p parallel.Placement) int64 {
	n := partsOf(s, how, !parallel.Replicated(s.Segments, p.Shared()))
	bytes := parallel.CombinerBytes(opOf(how, p), wire, n*s.Embd)
	if how == parallel.Exact {
		bytes += 4 * int64(n+s.MaxTokens*s.Used)
	}
	if p.Copies() {
		bytes += 4 * int64(s.MaxTokens*s.Used)
	}
	return bytes
}

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
	n := partsOf(s, f.reduce, shared != nil)
	c, err := parallel.NewCombiner(f.b, g, opOf(f.reduce, p), wire, n*s.Embd, f.meter.For(parallel.ForExperts))
	if err != nil {
		return err
	}
	f.exchange = &exchange{Combiner: c, gather: parallel.NewRowGather(f.b, f.meter.For(parallel.ForExperts)), rank: g.Rank(), shared: shared, counts: make([]int, size)}
	f.exchange.gather.Join(g)
	if shared != nil {
		f.shared = shared[g.Rank()]
	}
	if err := f.exchange.join(f, p, g.Rank()); err != nil {
		f.leave()
		return fmt.Errorf("memory of the assignment of experts: %w", err)
	}
	if f.reduce == parallel.Exact {
		if err := cmp.Or(alloc(f.b, &f.exchange.order, s.MaxTokens*s.Used), alloc(f.b, &f.exchange.place, n)); err != nil {
			f.leave()
			return fmt.Errorf("memory of the exchange: %w", err)
		}
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
	f.exchange.Free()
	kernels.Release(f.b, f.exchange.order)
	kernels.Release(f.b, f.exchange.place)
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
		packer.PackRows(packed[own.Start*each:], input[own.Start*s.Embd:], own.Len(), s.Embd)
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
	if packer != nil { // this rank's own rows stay unpacked, because the router reads them
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
	if f.reduce == parallel.Exact {
		return f.startExact(ctx, l)
	}
	s := f.shape
	f.b.SumSlots(f.exchange.Parts(), f.outs, f.pending, s.Used, s.Embd, false)
	if f.exchange.shared != nil && f.shared.Len() > 0 {
		f.encodeSharedOutput(l, nil, f.pending)
		f.b.Add(f.exchange.Parts(), f.exchange.Parts(), f.sum, f.pending*s.Embd)
	}
	var err error
	if f.cut == nil {
		err = f.exchange.StartAll(ctx, f.pending*s.Embd)
	} else {
		err = f.exchange.Start(ctx, f.pending*s.Embd, parallel.Counts(f.cut, s.Embd))
	}
	if err != nil {
		return err
	}
	f.digest(l)
	return nil
}

// startExact starts an all-gather of the outputs of the local slots and segments. Every
// rank knows which slots the others send, because it has routed every token.
func (f *Forward) startExact(ctx context.Context, l *Layer) error {
	b, e, d, rows := f.b, f.exchange, f.shape.Embd, f.pending
	if err := b.Flush(); err != nil { // ids
		return err
	}
	e.settle(f, rows)
	first, own := e.sort(e.to[:rows*f.shape.Used], rows, f.shape)
	if own > 0 {
		b.Gather(e.Parts()[first*d:], f.outs, e.order[:own], d)
	}
	n := rows * f.shape.Used
	if e.shared != nil {
		f.encodeSharedOutput(l, e.Parts()[(first+own)*d:], rows)
		n += rows * f.shape.Segments
	}
	if err := e.Start(ctx, n*d, e.counts); err != nil {
		return err
	}
	f.digest(l)
	return nil
}

// sort fills order, place and counts from the ranks of all slots. It returns the first
// part of this rank and how many slots it has.
func (e *exchange) sort(to []uint8, rows int, s Shape) (first, own int) {
	at := 0
	for r := range e.counts {
		begin := at
		for slot, of := range to {
			if int(of) == r {
				if r == e.rank {
					e.order[at-begin] = int32(slot)
				}
				e.place[slot] = int32(at)
				at++
			}
		}
		if r == e.rank {
			first, own = begin, at-begin
		}
		if e.shared != nil {
			for row := range rows {
				for k := e.shared[r].Start; k < e.shared[r].End; k++ {
					e.place[len(to)+row*s.Segments+k] = int32(at)
					at++
				}
			}
		}
		e.counts[r] = s.Embd * (at - begin)
	}
	return first, own
}

// finish waits for the exchange and encodes the ops that turn its result into out
// [own][D]; with Exact the output of a divided shared expert goes to sum.
func (f *Forward) finish(ctx context.Context, out []float32) error {
	b, e, s, rows, own := f.b, f.exchange, f.shape, f.pending, f.own()
	if f.reduce != parallel.Exact {
		return e.Finish(ctx, out, s.Embd)
	}
	if err := e.Finish(ctx, e.Parts(), s.Embd); err != nil {
		return err
	}
	slots, segments := rows*s.Used, rows*s.Segments
	if e.shared == nil {
		segments = 0
	}
	parts := e.Parts()[:(slots+segments)*s.Embd]
	b.Gather(f.outs, parts, e.place[own.Start*s.Used:own.End*s.Used], s.Embd)
	b.SumSlots(out, f.outs, own.Len(), s.Used, s.Embd, true)
	if segments > 0 {
		b.Gather(f.segments, parts, e.place[slots+own.Start*s.Segments:slots+own.End*s.Segments], s.Embd)
		b.SumSlots(f.sum, f.segments, own.Len(), s.Segments, s.Embd, true)
	}
	return nil
}

// digest adds the choice of experts to the checksum of the layer and counts what each rank
// computes. The ids must have been flushed.
func (f *Forward) digest(l *Layer) {
	f.exchange.settle(f, f.pending)
	f.meter.CountRouted(f.exchange.loads, f.exchange.rank, l.Gate.SliceBytes+l.Up.SliceBytes+l.Down.SliceBytes)
	for len(f.digests) <= f.layer {
		f.digests = append(f.digests, 0)
	}
	f.digests[f.layer] = crc32.Update(f.digests[f.layer], castagnoli, bytesOf(f.ids[:f.pending*f.shape.Used]))
}
