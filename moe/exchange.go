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

// Wire is the type of the numbers that ranks exchange.
type Wire uint8

// The types. With F16 what is beyond half's range makes the exchange repeat in
// float32, on all ranks alike.
const (
	F16 Wire = iota
	F32
)

// ParseWire reads the name of a type: "f16" or "f32".
func ParseWire(s string) (Wire, error) {
	switch s {
	case "f16":
		return F16, nil
	case "f32":
		return F32, nil
	}
	return F16, fmt.Errorf("moe: wire is %q; expected f16 or f32", s)
}

func (w Wire) String() string {
	if w == F32 {
		return "f32"
	}
	return "f16"
}

// exchange is what a Forward needs to combine with other ranks. With Sum a part
// is the sum of a token's owned outputs, with Exact the output of one slot.
type exchange struct {
	group  distributed.Group
	ranges []Range // [Size]
	wire   Wire
	seen   distributed.Stats // counted already

	parts []float32 // [parts][D], unrounded
	half  []uint16  // [parts][D], nil with F32

	// With Exact the parts stand by rank, of one rank by slot.
	order      []int32 // [MaxTokens*Used] slots in this order
	place      []int32 // [MaxTokens*Used] where each slot stands
	halfSizes  []int   // [Size] bytes of each rank on the wire, in half
	floatSizes []int   // [Size] the same in float32

	pending distributed.Pending
}

// partsOf is the most parts of a step.
func partsOf(s Shape, how Reduce) int {
	if how == Exact {
		return s.MaxTokens * s.Used
	}
	return s.MaxTokens
}

// ExchangeBytes is what Join allocates for a group of more than one rank.
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

// Join makes the Forward one rank of a group: rank r owns ranges[r], and from
// the next Begin on the outputs of all ranks are combined. All ranks join with
// the same ranges and wire. It may be called again, with another group or with
// nil to own all experts again; no Begin may be unfinished. A group of one rank
// is like nil. Of an error the Forward is as without a group.
func (f *Forward) Join(g distributed.Group, ranges []Range, wire Wire) error {
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
		halfSizes: make([]int, g.Size()), floatSizes: make([]int, g.Size())}
	f.x, f.owned = x, ranges[g.Rank()]
	err := alloc(f.b, &x.parts, n*s.Embd)
	if err == nil && wire == F16 {
		err = alloc(f.b, &x.half, n*s.Embd)
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

// leave frees what Join made.
func (f *Forward) leave() {
	if f.x == nil {
		return
	}
	kernels.Release(f.b, f.x.parts)
	kernels.Release(f.b, f.x.half)
	kernels.Release(f.b, f.x.order)
	kernels.Release(f.b, f.x.place)
	f.x, f.owned = nil, Range{0, f.shape.Experts}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// start flushes, so that the host may read what the group sends, and starts the
// exchange.
func (f *Forward) start(ctx context.Context) error {
	if f.reduce == Exact {
		return f.startExact(ctx)
	}
	b, x, n := f.b, f.x, f.pending*f.shape.Embd
	b.SumSlots(x.parts, f.outs, f.pending, f.shape.Used, f.shape.Embd, false)
	if x.wire == F16 {
		b.ToFloat16(x.half, x.parts, n)
	}
	if err := b.Flush(); err != nil {
		return err
	}
	f.digest()
	if x.wire == F16 {
		buf := asBytes(x.half[:n])
		x.pending = x.group.StartAllSum(ctx, buf, buf, distributed.Float16)
	} else {
		buf := asBytes(x.parts[:n])
		x.pending = x.group.StartAllSum(ctx, buf, buf, distributed.Float32)
	}
	return nil
}

// startExact gathers the outputs of the owned slots. Every rank knows all
// choices, so it knows which slots the others send.
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
			b.ToFloat16(x.half[at:], x.parts[at:], n)
		}
		if err := b.Flush(); err != nil {
			return err
		}
	}
	all := f.pending * f.shape.Used * d
	if x.wire == F16 {
		x.pending = x.group.StartAllGatherV(ctx, asBytes(x.half[:all]), x.halfSizes)
	} else {
		x.pending = x.group.StartAllGatherV(ctx, asBytes(x.parts[:all]), x.floatSizes)
	}
	return nil
}

// sort fills order, place and the sizes from the experts of all slots and returns
// where the parts of this rank begin, and how many they are.
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
		x.floatSizes[r] = 4 * d * (at - begin)
		x.halfSizes[r] = 2 * d * (at - begin)
	}
	return first, own
}

// finish awaits the exchange and encodes what turns it into out. It tells how
// often the exchange was repeated in float32.
func (f *Forward) finish(ctx context.Context, out []float32, rows int) (repeated uint64, err error) {
	b, x, s := f.b, f.x, f.shape
	n := rows * s.Embd
	if f.reduce == Exact {
		n *= s.Used
	}
	if err := x.pending.Wait(); err != nil {
		return 0, err
	}
	overflow := x.wire == F16 && reduce.NonFiniteFloat16(asBytes(x.half[:n]))
	if overflow {
		// What came is the same on every rank, so every rank repeats.
		if err := f.repeat(ctx, n); err != nil {
			return 0, err
		}
		repeated = 1
	}
	unrounded := overflow || x.wire == F32
	switch {
	case f.reduce == Exact:
		if !unrounded {
			b.FromFloat16(x.parts, x.half, n)
		}
		b.Gather(f.outs, x.parts[:n], x.place[:rows*s.Used], s.Embd)
		b.SumSlots(out, f.outs, rows, s.Used, s.Embd, true)
	case unrounded:
		b.SumSlots(out, x.parts, rows, 1, s.Embd, false) // a copy
	default:
		b.FromFloat16(out, x.half, n)
	}
	return repeated, nil
}

// repeat runs the exchange again from the unrounded parts, and leaves its
// result in them.
func (f *Forward) repeat(ctx context.Context, n int) error {
	x := f.x
	buf := asBytes(x.parts[:n])
	if f.reduce == Exact {
		return x.group.StartAllGatherV(ctx, buf, x.floatSizes).Wait()
	}
	return x.group.AllSum(ctx, buf, buf, distributed.Float32)
}

// digest notes the choice of experts of the layer. The ids have been flushed.
func (f *Forward) digest() {
	for len(f.digests) <= f.layer {
		f.digests = append(f.digests, 0)
	}
	f.digests[f.layer] = crc32.Checksum(asBytes(f.ids[:f.pending*f.shape.Used]), castagnoli)
}

// asBytes is the memory of x.
func asBytes[T float32 | int32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
