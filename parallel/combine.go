package parallel

import (
	"context"
	"fmt"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
	"ringmaster/kernels"
)

// Op is a collective of rows of numbers.
type Op uint8

// The collectives.
const (
	// AllReduce leaves the sum over the ranks on every rank.
	AllReduce Op = iota
	// ReduceScatter leaves on every rank its part of the sum over the ranks.
	ReduceScatter
	// AllGather leaves the parts of all ranks on every rank.
	AllGather
	// Gather leaves the parts of all ranks on rank 0.
	Gather
)

// leader is the rank on which Gather leaves its result.
const leader = 0

var opNames = []string{"all-reduce", "reduce-scatter", "all-gather", "gather"}

// String names the collective.
func (o Op) String() string { return opNames[o] }

// Combiner runs one collective repeatedly on float32 numbers in memory of a backend. Each
// time, the caller encodes ops that write its numbers into Parts, calls Start, encodes
// other ops, and calls Finish.
//
// With F16 the numbers travel as float16. If one of them is then not finite, all ranks
// repeat the exchange in float32, and the rows with such a number take the second result.
// The other rows keep the first, because a row must not depend on the rows beside it.
//
// One goroutine uses a Combiner. Between Start and Finish no other operation of its group
// may begin.
type Combiner struct {
	b     kernels.Backend
	group *distributed.Group
	op    Op
	wire  Wire
	meter Counter

	parts []float32 // [capacity] what this rank contributes, then what it gets
	f16   []uint16  // [capacity] the same on the wire; nil with F32
	got   []float32 // [capacity] what ReduceScatter leaves, nil for the others
	got16 []uint16  // [capacity] the same on the wire; nil with F32

	flag [1]byte // 1 if this rank saw a number beyond float16, then if any did
	now  exchange
}

// exchange is an exchange of a Combiner between its Start and the end of its wait.
type exchange struct {
	op         Op       // the Combiner's, or AllReduce of StartAll
	n          int      // numbers of all parts
	first, own int      // numbers before this rank's part, and in it; 0 and n for AllReduce
	sizes      [2][]int // [Wire][Size] bytes of each part
	pending    distributed.Pending
}

// NewCombiner allocates a combiner for at most capacity numbers on each rank. meter
// counts its exchanges. An error comes from the backend and means that memory has run
// out.
func NewCombiner(b kernels.Backend, g *distributed.Group, op Op, wire Wire, capacity int, meter Counter) (*Combiner, error) {
	c := &Combiner{b: b, group: g, op: op, wire: wire, meter: meter}
	// The host reads what travels. With F16 it reads the float32 numbers only after an
	// overflow, or if the experts that compute them are its own.
	make32 := kernels.MakeHost[float32]
	if wire == F16 && !kernels.HostOf(b).Experts {
		make32 = kernels.Make[float32]
	}
	var err error
	c.parts, err = make32(b, capacity)
	if err == nil && wire == F16 {
		c.f16, err = kernels.MakeHost[uint16](b, capacity)
	}
	if err == nil && op == ReduceScatter {
		c.got, err = make32(b, capacity)
		if err == nil && wire == F16 {
			c.got16, err = kernels.MakeHost[uint16](b, capacity)
		}
	}
	if err != nil {
		c.Free()
		return nil, fmt.Errorf("memory of the %s: %w", op, err)
	}
	return c, nil
}

// CombinerBytes returns the bytes that NewCombiner allocates.
func CombinerBytes(op Op, wire Wire, capacity int) int64 {
	each := int64(4)
	if wire == F16 {
		each += 2
	}
	if op == ReduceScatter {
		each *= 2
	}
	return each * int64(capacity)
}

// Free releases the memory. The caller keeps the group.
func (c *Combiner) Free() {
	kernels.Release(c.b, c.parts)
	kernels.Release(c.b, c.f16)
	kernels.Release(c.b, c.got)
	kernels.Release(c.b, c.got16)
	c.parts, c.f16, c.got, c.got16 = nil, nil, nil, nil
}

// Parts [capacity] returns the memory for this rank's numbers before Start, with the
// parts of the ranks one after the other. AllReduce and ReduceScatter read all of them,
// AllGather and Gather only this rank's own part, in its place.
func (c *Combiner) Parts() []float32 { return c.parts }

// Start flushes, so that the CPU can read what the group sends, and starts the exchange
// of n numbers. counts [Size] is how many of them each rank's part has, the same on all
// ranks; nil divides n evenly. AllReduce has no parts and ignores it. An error comes from
// the backend. After a Start without an error, Finish must follow.
func (c *Combiner) Start(ctx context.Context, n int, counts []int) error {
	return c.begin(ctx, c.op, n, counts)
}

// StartAll starts an AllReduce in place of a ReduceScatter, when every rank needs the
// whole sum this time.
func (c *Combiner) StartAll(ctx context.Context, n int) error {
	return c.begin(ctx, AllReduce, n, nil)
}

func (c *Combiner) begin(ctx context.Context, op Op, n int, counts []int) error {
	x, err := c.divide(op, n, counts)
	if err != nil {
		return err
	}
	at, send := x.first, x.own
	if op == ReduceScatter {
		at, send = 0, n
	}
	if send > 0 && c.wire == F16 {
		c.b.ToFloat16(c.f16[at:], c.parts[at:], send)
	}
	// The flush is needed even if this rank sends nothing, because the others' data is
	// written where ops that follow the previous exchange may still read.
	if err := kernels.Reach(c.b); err != nil {
		return err
	}
	x.pending = c.start(ctx, x, c.wire)
	c.now = x
	return nil
}

// divide is the exchange of n numbers. Errors wrap distributed.ErrArgument.
func (c *Combiner) divide(op Op, n int, counts []int) (x exchange, err error) {
	size := c.group.Size()
	x = exchange{op: op, n: n, own: n}
	if n < 0 || n > len(c.parts) {
		return x, fmt.Errorf("%s of %d numbers; it has room for %d: %w", op, n, len(c.parts), distributed.ErrArgument)
	}
	if op == AllReduce {
		return x, nil
	}
	if counts == nil && n%size != 0 || counts != nil && len(counts) != size {
		return x, fmt.Errorf("%s of %d numbers in %d parts among %d ranks: %w", op, n, len(counts), size, distributed.ErrArgument)
	}
	x.sizes = [2][]int{make([]int, size), make([]int, size)}
	at := 0
	for r := range size {
		k := n / size
		if counts != nil {
			k = counts[r]
		}
		if r == c.group.Rank() {
			x.first, x.own = at, k
		}
		x.sizes[F32][r], x.sizes[F16][r] = 4*k, 2*k
		if at += k; k < 0 {
			return x, fmt.Errorf("%s: the part of rank %d has %d numbers: %w", op, r, k, distributed.ErrArgument)
		}
	}
	if at != n {
		return x, fmt.Errorf("%s of %d numbers, but the parts have %d: %w", op, n, at, distributed.ErrArgument)
	}
	return x, nil
}

// start starts the operation of the group on the numbers in a type.
func (c *Combiner) start(ctx context.Context, x exchange, wire Wire) distributed.Pending {
	dt, all, got := distributed.Float32, asBytes(c.parts[:x.n]), []byte(nil)
	if x.op == ReduceScatter {
		got = asBytes(c.got[:x.own])
	}
	if wire == F16 {
		dt, all = distributed.Float16, asBytes(c.f16[:x.n])
		if x.op == ReduceScatter {
			got = asBytes(c.got16[:x.own])
		}
	}
	sizes, each := x.sizes[wire], dt.Size()
	switch x.op {
	case ReduceScatter:
		return c.group.StartReduceScatter(ctx, got, all, sizes, dt)
	case AllGather:
		return c.group.StartAllGatherV(ctx, all, sizes)
	case Gather:
		return c.group.StartGather(ctx, all, all[each*x.first:each*(x.first+x.own)], sizes, leader)
	}
	return c.group.StartAllSum(ctx, all, all, dt)
}

// Finish waits for the exchange, perhaps only when the ops that follow start (kernels.Await),
// and encodes the ops that leave its result in out, in rows of width: the sum or all parts [n], with ReduceScatter this rank's part of the sum,
// with Gather nothing on ranks other than 0. For AllGather and Gather out may be Parts.
// An error comes from the group.
func (c *Combiner) Finish(ctx context.Context, out []float32, width int) error {
	x, overflow := c.now, false
	return c.meter.await(c.b, func() (bool, error) {
		var err error
		overflow, err = c.finish(ctx, x)
		return overflow, err
	}, func() { c.take(x, overflow, out, width) })
}

// finish waits for an exchange and reports whether it was repeated in float32.
func (c *Combiner) finish(ctx context.Context, x exchange) (overflow bool, err error) {
	if err := x.pending.Wait(); err != nil {
		return false, err
	}
	_, half := c.result(x)
	// If ops do not run, half has no values, and reading it would only load its pages.
	overflow = c.wire == F16 && kernels.ValuesMatter(c.b) && reduce.NonFiniteFloat16(asBytes(half))
	if c.wire == F16 && (x.op == ReduceScatter || x.op == Gather) {
		// The ranks exchange a flag, because no rank has seen all numbers.
		if overflow, err = c.any(ctx, overflow); err != nil {
			return false, err
		}
	}
	if overflow {
		if err := c.start(ctx, x, F32).Wait(); err != nil {
			return false, err
		}
	}
	c.meter.exchanged(x.op, overflow)
	return overflow, nil
}

// take encodes the ops that leave the result of an exchange in out.
func (c *Combiner) take(x exchange, overflow bool, out []float32, width int) {
	if x.op == Gather && c.group.Rank() != leader {
		return
	}
	full, half := c.result(x)
	n := len(full)
	if n == 0 {
		return
	}
	if c.wire == F16 && !overflow {
		c.b.FromFloat16(out, half, n)
		return
	}
	if unsafe.SliceData(out) != unsafe.SliceData(full) {
		c.b.SumSlots(out, full, n/width, 1, width) // a copy
	}
	if overflow {
		c.keepFinite(out, half, width)
	}
}

// result returns the numbers that an exchange has left on this rank: in float32 if they
// travelled as that, and in float16, nil with F32. Ranks other than the leader of a
// Gather have only their own.
func (c *Combiner) result(x exchange) (full []float32, half []uint16) {
	full, half = c.parts, c.f16
	from, to := 0, x.n
	switch {
	case x.op == ReduceScatter:
		full, half, to = c.got, c.got16, x.own
	case x.op == Gather && c.group.Rank() != leader:
		from, to = x.first, x.first+x.own
	}
	if half != nil {
		half = half[from:to]
	}
	return full[from:to], half
}

// any reports whether the flag of any rank is set.
func (c *Combiner) any(ctx context.Context, mine bool) (bool, error) {
	c.flag[0] = 0
	if mine {
		c.flag[0] = 1
	}
	err := c.group.AllMax(ctx, c.flag[:], c.flag[:], distributed.Bool)
	return c.flag[0] != 0, err
}

// keepFinite encodes ops that restore the rows of out in which the first exchange was
// finite.
func (c *Combiner) keepFinite(out []float32, half []uint16, width int) {
	for at := 0; at < len(half); at += width {
		row := half[at:min(at+width, len(half))]
		if !reduce.NonFiniteFloat16(asBytes(row)) {
			c.b.FromFloat16(out[at:], row, len(row))
		}
	}
}

// asBytes returns the memory of x as bytes.
func asBytes[T float32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
