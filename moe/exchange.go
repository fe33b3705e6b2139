package moe

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// exchange is what a Forward needs to combine its outputs with those of other
// ranks. With Sum it is an all-reduce, and a part is the sum of a token's local
// experts. With Exact it is an all-gather, and a part is the output of one slot
// (a selected expert of a token).
type exchange struct {
	*parallel.Combiner
	rank   int
	ranges []parallel.Range // [Size] local experts of each rank

	// With Exact parts are ordered by rank, those of a rank by slot.
	order  []int32 // [MaxTokens*Used] slot of each part
	place  []int32 // [MaxTokens*Used] part of each slot
	counts []int   // [Size] numbers that each rank sends
}

// opOf is the collective of a way to reduce, and partsOf the greatest number of
// parts of a step.
func opOf(how parallel.Reduce) parallel.Op {
	if how == parallel.Exact {
		return parallel.AllGather
	}
	return parallel.AllReduce
}

func partsOf(s Shape, how parallel.Reduce) int {
	if how == parallel.Exact {
		return s.MaxTokens * s.Used
	}
	return s.MaxTokens
}

// ExchangeBytes is the bytes that Join allocates for a group of more than one
// rank.
func ExchangeBytes(s Shape, how parallel.Reduce, wire parallel.Wire) int64 {
	n := partsOf(s, how)
	bytes := parallel.CombinerBytes(opOf(how), wire, n*s.Embd)
	if how == parallel.Exact {
		bytes += 8 * int64(n)
	}
	return bytes
}

// Join makes the Forward one rank of a group: the experts ranges[r] are local to
// rank r, and from the next Begin on the outputs of all ranks are combined. All
// ranks join with the same ranges and wire. Join may be called again between
// steps, with another group, or with nil to own all experts again. A group of one
// rank is like nil. After an error the Forward is without a group; the error
// wraps distributed.ErrArgument if the ranges do not cover the experts.
func (f *Forward) Join(g *distributed.Group, ranges []parallel.Range, wire parallel.Wire) error {
	f.leave()
	if g == nil || g.Size() == 1 {
		if ranges != nil {
			return parallel.CheckDivision("experts", f.shape.Experts, 1, ranges)
		}
		return nil
	}
	if err := parallel.CheckDivision("experts", f.shape.Experts, g.Size(), ranges); err != nil {
		return err
	}
	s, n := f.shape, partsOf(f.shape, f.reduce)
	c, err := parallel.NewCombiner(f.b, g, opOf(f.reduce), wire, n*s.Embd, f.meter)
	if err != nil {
		return fmt.Errorf("moe: %w", err)
	}
	f.x = &exchange{Combiner: c, rank: g.Rank(), ranges: slices.Clone(ranges), counts: make([]int, g.Size())}
	f.owned = ranges[g.Rank()]
	if f.reduce == parallel.Exact {
		if err := firstError(alloc(f.b, &f.x.order, n), alloc(f.b, &f.x.place, n)); err != nil {
			f.leave()
			return fmt.Errorf("moe: memory of the exchange: %w", err)
		}
	}
	f.meter.Join(g)
	return nil
}

// leave frees the memory of Join.
func (f *Forward) leave() {
	f.meter.Join(nil)
	if f.x == nil {
		return
	}
	f.x.Free()
	kernels.Release(f.b, f.x.order)
	kernels.Release(f.b, f.x.place)
	f.x, f.owned = nil, parallel.Range{End: f.shape.Experts}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// start encodes what this rank contributes, starts the exchange, and takes the
// digest of the layer while it is under way.
func (f *Forward) start(ctx context.Context) error {
	if f.reduce == parallel.Exact {
		return f.startExact(ctx)
	}
	s := f.shape
	f.b.SumSlots(f.x.Parts(), f.outs, f.pending, s.Used, s.Embd, false)
	if err := f.x.Start(ctx, f.pending*s.Embd, nil); err != nil {
		return err
	}
	f.digest()
	return nil
}

// startExact starts an all-gather of the outputs of the local slots. Every rank
// has routed every token, so it knows which slots the others send.
func (f *Forward) startExact(ctx context.Context) error {
	b, x, d := f.b, f.x, f.shape.Embd
	if err := b.Flush(); err != nil { // ids
		return err
	}
	first, own := x.sort(f.ids[:f.pending*f.shape.Used], d)
	if own > 0 {
		b.Gather(x.Parts()[first*d:], f.outs, x.order[first:first+own], d)
	}
	if err := x.Start(ctx, f.pending*f.shape.Used*d, x.counts); err != nil {
		return err
	}
	f.digest()
	return nil
}

// sort fills order, place and counts from the experts of all slots. It returns
// the first part of this rank and the number of its parts.
func (x *exchange) sort(ids []int32, d int) (first, own int) {
	at := 0
	for r, owned := range x.ranges {
		begin := at
		for slot, e := range ids {
			if int(e) >= owned.Start && int(e) < owned.End {
				x.order[at], x.place[slot] = int32(slot), int32(at)
				at++
			}
		}
		if r == x.rank {
			first, own = begin, at-begin
		}
		x.counts[r] = d * (at - begin)
	}
	return first, own
}

// finish waits for the exchange and encodes the ops that turn its result into out
// [rows][D].
func (f *Forward) finish(ctx context.Context, out []float32, rows int) error {
	b, x, s := f.b, f.x, f.shape
	if f.reduce != parallel.Exact {
		return x.Finish(ctx, out, s.Embd)
	}
	if err := x.Finish(ctx, x.Parts(), s.Embd); err != nil {
		return err
	}
	slots := rows * s.Used
	b.Gather(f.outs, x.Parts()[:slots*s.Embd], x.place[:slots], s.Embd)
	b.SumSlots(out, f.outs, rows, s.Used, s.Embd, true)
	return nil
}

// digest records a checksum of the layer's choice of experts. The ids must have
// been flushed.
func (f *Forward) digest() {
	for len(f.digests) <= f.layer {
		f.digests = append(f.digests, 0)
	}
	ids := f.ids[:f.pending*f.shape.Used]
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids))
	f.digests[f.layer] = crc32.Checksum(bytes, castagnoli)
}
