package moe

import (
	"context"
	"fmt"
	"hash/crc32"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
	"ringmaster/kernels"
)

// Wire is the type of the numbers on the wire of the combine.
type Wire uint8

// The types. With F16 a value beyond the range of float16 makes all ranks repeat
// the exchange in float32, and the rows that have such a value take the result.
const (
	F16 Wire = iota
	F32
)

// ParseWire reads the name of a type, "f16" or "f32"; any other is an error.
func ParseWire(s string) (Wire, error) {
	switch s {
	case "f16":
		return F16, nil
	case "f32":
		return F32, nil
	}
	return F16, fmt.Errorf("moe: wire is %q; expected f16 or f32", s)
}

// String is the name that ParseWire reads.
func (w Wire) String() string {
	if w == F32 {
		return "f32"
	}
	return "f16"
}

// exchange is what a Forward needs to combine its outputs with those of other
// ranks. With Sum it is an all-reduce, and a part is the sum of a token's local
// experts. With Exact it is an all-gather, and a part is the output of one slot
// (a selected expert of a token).
type exchange struct {
	group  *distributed.Group
	ranges []Range // [Size] local experts of each rank
	wire   Wire
	seen   distributed.Stats // when the last layer ended

	parts []float32 // [parts][D], unrounded
	f16   []uint16  // [parts][D] float16, nil with F32

	// With Exact parts are ordered by rank, those of a rank by slot.
	order    []int32 // [MaxTokens*Used] slot of each part
	place    []int32 // [MaxTokens*Used] part of each slot
	f16Sizes []int   // [Size] bytes of each rank on the wire, in float16
	f32Sizes []int   // [Size] the same in float32

	pending distributed.Pending
}

// partsOf is the greatest number of parts of a step.
func partsOf(s Shape, how Reduce) int {
	if how == Exact {
		return s.MaxTokens * s.Used
	}
	return s.MaxTokens
}

// ExchangeBytes is the bytes that Join allocates for a group of more than one
// rank.
func ExchangeBytes(s Shape, how Reduce, wire Wire) int64 {
	n := int64(partsOf(s, how))
	bytes := 4 * n * int64(s.Embd)
	if wire == F16 {
		bytes += 2 * n * int64(s.Embd)
	}
	if how == Exact {
		bytes += 8 * n
	}
	return bytes
}

// Join makes the Forward one rank of a group: the experts ranges[r] are local to
// rank r, and from the next Begin on the outputs of all ranks are combined. All
// ranks join with the same ranges and wire. Join may be called again between
// steps, with another group, or with nil to own all experts again. A group of one
// rank is like nil. After an error the Forward is without a group; the error
// wraps distributed.ErrArgument if the ranges do not cover the experts.
func (f *Forward) Join(g *distributed.Group, ranges []Range, wire Wire) error {
	f.leave()
	if g == nil || g.Size() == 1 {
		if ranges != nil {
			return checkRanges(f.shape.Experts, 1, ranges)
		}
		return nil
	}
	if err := checkRanges(f.shape.Experts, g.Size(), ranges); err != nil {
		return err
	}
	s, n := f.shape, partsOf(f.shape, f.reduce)
	x := &exchange{group: g, ranges: append([]Range(nil), ranges...), wire: wire, seen: g.Stats(),
		f16Sizes: make([]int, g.Size()), f32Sizes: make([]int, g.Size())}
	f.x, f.owned = x, ranges[g.Rank()]
	err := alloc(f.b, &x.parts, n*s.Embd)
	if err == nil && wire == F16 {
		err = alloc(f.b, &x.f16, n*s.Embd)
	}
	if err == nil && f.reduce == Exact {
		err = firstError(alloc(f.b, &x.order, n), alloc(f.b, &x.place, n))
	}
	if err != nil {
		f.leave()
		return fmt.Errorf("moe: memory of the exchange: %w", err)
	}
	return nil
}

// leave frees the memory of Join.
func (f *Forward) leave() {
	if f.x == nil {
		return
	}
	kernels.Release(f.b, f.x.parts)
	kernels.Release(f.b, f.x.f16)
	kernels.Release(f.b, f.x.order)
	kernels.Release(f.b, f.x.place)
	f.x, f.owned = nil, Range{0, f.shape.Experts}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// start flushes, so that the CPU can read what the group sends, and starts the
// exchange.
func (f *Forward) start(ctx context.Context) error {
	if f.reduce == Exact {
		return f.startExact(ctx)
	}
	b, x, n := f.b, f.x, f.pending*f.shape.Embd
	b.SumSlots(x.parts, f.outs, f.pending, f.shape.Used, f.shape.Embd, false)
	if x.wire == F16 {
		b.ToFloat16(x.f16, x.parts, n)
	}
	if err := b.Flush(); err != nil {
		return err
	}
	f.digest()
	if x.wire == F16 {
		buf := asBytes(x.f16[:n])
		x.pending = x.group.StartAllSum(ctx, buf, buf, distributed.Float16)
	} else {
		buf := asBytes(x.parts[:n])
		x.pending = x.group.StartAllSum(ctx, buf, buf, distributed.Float32)
	}
	return nil
}

// startExact starts an all-gather of the outputs of the local slots. Every rank
// has routed every token, so it knows which slots the others send.
func (f *Forward) startExact(ctx context.Context) error {
	b, x, d := f.b, f.x, f.shape.Embd
	if err := b.Flush(); err != nil { // ids
		return err
	}
	f.digest()
	first, own := x.sort(f.ids[:f.pending*f.shape.Used], d)
	at, n := first*d, own*d
	if own > 0 {
		b.Gather(x.parts[at:], f.outs, x.order[first:first+own], d)
		if x.wire == F16 {
			b.ToFloat16(x.f16[at:], x.parts[at:], n)
		}
		if err := b.Flush(); err != nil {
			return err
		}
	}
	all := f.pending * f.shape.Used * d
	if x.wire == F16 {
		x.pending = x.group.StartAllGatherV(ctx, asBytes(x.f16[:all]), x.f16Sizes)
	} else {
		x.pending = x.group.StartAllGatherV(ctx, asBytes(x.parts[:all]), x.f32Sizes)
	}
	return nil
}

// sort fills order, place and the sizes from the experts of all slots. It returns
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
		if r == x.group.Rank() {
			first, own = begin, at-begin
		}
		x.f32Sizes[r] = 4 * d * (at - begin)
		x.f16Sizes[r] = 2 * d * (at - begin)
	}
	return first, own
}

// finish waits for the exchange and encodes the ops that turn its result into out
// [rows][D]. repeated is 1 if the exchange was repeated in float32.
func (f *Forward) finish(ctx context.Context, out []float32, rows int) (repeated uint64, err error) {
	b, x, s := f.b, f.x, f.shape
	n := rows * s.Embd
	if f.reduce == Exact {
		n *= s.Used
	}
	if err := x.pending.Wait(); err != nil {
		return 0, err
	}
	overflow := x.wire == F16 && reduce.NonFiniteFloat16(asBytes(x.f16[:n]))
	if overflow {
		// All ranks received the same bits, so all of them repeat.
		if err := f.repeat(ctx, n); err != nil {
			return 0, err
		}
		repeated = 1
	}
	unrounded := overflow || x.wire == F32
	switch {
	case f.reduce == Exact:
		if !unrounded {
			b.FromFloat16(x.parts, x.f16, n)
		}
		b.Gather(f.outs, x.parts[:n], x.place[:rows*s.Used], s.Embd)
		b.SumSlots(out, f.outs, rows, s.Used, s.Embd, true)
	case unrounded:
		b.SumSlots(out, x.parts, rows, 1, s.Embd, false) // a copy
		if overflow {
			f.keepFinite(out, rows)
		}
	default:
		b.FromFloat16(out, x.f16, n)
	}
	return repeated, nil
}

// keepFinite encodes ops that take the rows of out [rows][D] whose first exchange
// was finite from that: what a row is must not depend on the other rows of the
// step, of which one may be beyond float16 or not finite.
func (f *Forward) keepFinite(out []float32, rows int) {
	d := f.shape.Embd
	for r := range rows {
		row := f.x.f16[r*d : (r+1)*d]
		if !reduce.NonFiniteFloat16(asBytes(row)) {
			f.b.FromFloat16(out[r*d:], row, d)
		}
	}
}

// repeat runs the exchange again on the unrounded parts, n elements, and leaves
// the result in them.
func (f *Forward) repeat(ctx context.Context, n int) error {
	x := f.x
	buf := asBytes(x.parts[:n])
	if f.reduce == Exact {
		return x.group.StartAllGatherV(ctx, buf, x.f32Sizes).Wait()
	}
	return x.group.AllSum(ctx, buf, buf, distributed.Float32)
}

// digest records a checksum of the layer's choice of experts. The ids must have
// been flushed.
func (f *Forward) digest() {
	for len(f.digests) <= f.layer {
		f.digests = append(f.digests, 0)
	}
	f.digests[f.layer] = crc32.Checksum(asBytes(f.ids[:f.pending*f.shape.Used]), castagnoli)
}

// asBytes is the memory of x as bytes.
func asBytes[T float32 | int32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
