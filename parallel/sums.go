package parallel

import (
	"context"
	"fmt"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel/lanes"
)

// Sums adds terms of rows exactly, on one rank and over the ranks of a group: as integers,
// rounded once at the end (see kernels.Backend.SumExact). So no bit depends on the order of
// the terms or on which rank has which of them.
//
// For each sum, the caller calls Set or SetZero, perhaps Add, in a group Start and
// Finish, perhaps Add, and Round.
//
// One goroutine uses it. Between Start and Finish no other operation of its group may
// begin.
type Sums struct {
	b     kernels.Backend
	meter Counter
	width int
	most  int     // rows
	sums  []int64 // [most][width]
	host  bool    // sums are memory that the host reads fast

	group *distributed.Group
	few   int     // most numbers that are gathered rather than reduced
	wire  []int32 // what travels
	got   []int32 // what a reduce-scatter leaves

	// Of the current exchange.
	zero    bool // this rank has no terms yet, and sums are those of the previous step
	rows    int
	own     Range          // rows that this rank gets
	op      Op             // AllGather, AllReduce or ReduceScatter
	layouts []lanes.Layout // [blocks] of the reduced blocks
	limits  []lanes.Limits // [blocks] of this rank's blocks, or those that are reduced
	sizes   []int          // [Size] bytes of each part
	pending distributed.Pending
}

// NewSums allocates what a rank without a group needs for sums of at most so many rows.
// meter counts the exchanges. An error comes from the backend and means that memory has
// run out.
func NewSums(b kernels.Backend, width, rows int, meter Counter) (*Sums, error) {
	s := &Sums{b: b, meter: meter, width: width, most: rows}
	if err := s.allocate(kernels.HostOf(b).Experts); err != nil {
		return nil, err
	}
	return s, nil
}

// allocate replaces the memory of the sums. host says whether the host reads it.
func (s *Sums) allocate(host bool) (err error) {
	take := kernels.Make[int64]
	if host {
		take = kernels.MakeHost[int64]
	}
	kernels.Release(s.b, s.sums)
	if s.sums, err = take(s.b, s.most*s.width); err != nil {
		return fmt.Errorf("memory of the sums: %w", err)
	}
	s.host = host
	return nil
}

// SumsBytes returns the bytes that NewSums allocates.
func SumsBytes(width, rows int) int64 { return 8 * int64(width*rows) }

// SumsJoinBytes returns the bytes that Join allocates for a group of so many ranks. Sums
// that need more than one lane enlarge them, to at most three times as many.
func SumsJoinBytes(width, rows, ranks int, cut bool) int64 {
	wire, got := sumsLengths(width, rows, ranks, cut)
	return 4 * int64(wire+got)
}

// gathered is how many bytes a rank receives at most where sums are gathered. That takes
// one exchange, and reducing them two, which is faster only if there are more.
const gathered = 128 << 10

// fewest is the number of sums up to which they are gathered.
func fewest(ranks int) int { return gathered / 4 / max(ranks-1, 1) }

// messageOf is the length of the message of a rank whose sums are gathered, in int32: the
// layouts of the blocks, a lane of each block, and room for the second lanes of few.
func messageOf(width, rows int) int {
	blocks := lanes.Blocks(rows, width)
	return (blocks+3)/4 + rows*width + (blocks/32+1)*lanes.Block
}

// widest is the length of a message with room for all lanes.
func widest(width, rows int) int { return (lanes.Blocks(rows, width)+3)/4 + 3*rows*width }

// sumsLengths returns the usual lengths of wire and got. Wider sums enlarge them to three
// lanes of each block.
func sumsLengths(width, rows, ranks int, cut bool) (wire, got int) {
	n := min(rows, fewest(ranks)/width)
	wire = ranks * messageOf(width, n)
	switch {
	case ranks == 2 && n < rows:
		wire = 2 * messageOf(width, rows)
	case ranks > 2 && (n < rows || cut):
		wire = max(wire, messageOf(width, rows))
	}
	if ranks > 2 && cut {
		got = messageOf(width, rows)
	}
	return wire, got
}

// Join makes the Sums one rank of a group, nil for none; cut says whether some Starts have
// a cut. An error comes from the backend.
func (s *Sums) Join(g *distributed.Group, cut bool) error {
	s.leave()
	if g == nil {
		return nil
	}
	var err error
	if kernels.HostOf(s.b).SlowReads && !s.host { // in a group the host encodes the sums
		if err = s.allocate(true); err != nil {
			return err
		}
	}
	wire, got := sumsLengths(s.width, s.most, g.Size(), cut)
	if s.wire, err = kernels.MakeHost[int32](s.b, wire); err == nil {
		s.got, err = kernels.MakeHost[int32](s.b, got)
	}
	if err != nil {
		s.leave()
		return fmt.Errorf("memory of the sums: %w", err)
	}
	s.group, s.few, s.sizes = g, fewest(g.Size()), make([]int, g.Size())
	return nil
}

// leave frees the memory of Join.
func (s *Sums) leave() {
	kernels.Release(s.b, s.wire)
	kernels.Release(s.b, s.got)
	s.wire, s.got, s.group = nil, nil, nil
}

// Free releases the memory. The caller keeps the group.
func (s *Sums) Free() {
	s.leave()
	kernels.Release(s.b, s.sums)
	s.sums = nil
}

// Set encodes the sums of terms [rows][count][width].
func (s *Sums) Set(terms []float32, rows, count int) { s.set(terms, rows, count, false) }

// Add encodes the addition of terms [rows][count][width].
func (s *Sums) Add(terms []float32, rows, count int) { s.set(terms, rows, count, true) }

func (s *Sums) set(terms []float32, rows, count int, add bool) {
	s.b.SumExact(s.sums, terms, rows, count, s.width, add && !s.zero)
	s.zero = false
}

// SetZero is Set on a rank that has no terms.
func (s *Sums) SetZero() { s.zero = true }

// Round encodes the rounding of the sums of the first rows into out [rows][width].
func (s *Sums) Round(out []float32, rows int) { s.b.RoundSums(out, s.sums, rows*s.width) }

// Start flushes and starts to add the sums of all ranks. cut [Size] says which rows each
// rank needs, nil if every rank needs all. After a Start without an error Finish must
// follow. An error comes from the backend or the group.
func (s *Sums) Start(ctx context.Context, rows int, cut []Range) error {
	if err := kernels.Reach(s.b); err != nil {
		return err
	}
	s.rows, s.own = rows, Range{End: rows}
	if s.zero {
		clear(s.sums[:rows*s.width])
		s.zero = false
	}
	switch {
	case cut != nil:
		s.op, s.own = ReduceScatter, cut[s.group.Rank()]
	case rows*s.width > s.few:
		s.op = AllReduce
	default:
		s.op = AllGather
		return s.gather(ctx, messageOf(s.width, rows))
	}
	return s.reduce(ctx, cut)
}

// room makes x at least n long. What it held is lost.
func (s *Sums) room(x *[]int32, n int) error {
	if len(*x) >= n {
		return nil
	}
	kernels.Release(s.b, *x)
	var err error
	if *x, err = kernels.MakeHost[int32](s.b, n); err != nil {
		return fmt.Errorf("memory of the sums: %w", err)
	}
	return nil
}

// gather starts an all-gather of the ranks' messages of n int32.
func (s *Sums) gather(ctx context.Context, n int) error {
	if err := s.room(&s.wire, n*s.group.Size()); err != nil {
		return err
	}
	for r := range s.sizes {
		s.sizes[r] = 4 * n
	}
	if kernels.ValuesMatter(s.b) {
		for r := range s.sizes { // a group for measurements leaves them as they are
			layouts, _ := s.message(r, n)
			clear(layouts)
		}
		layouts, to := s.message(s.group.Rank(), n)
		s.limits = grown(s.limits, len(layouts))
		lanes.Measure(s.limits, s.sums[:s.rows*s.width], s.width)
		lanes.Pack(layouts, s.limits, s.width)
		if lanes.Len(layouts, s.width) <= len(to) {
			lanes.Encode(to, layouts, s.sums[:s.rows*s.width], s.width)
		} else {
			layouts[0] = lanes.Unfit
		}
	}
	s.pending = s.group.StartAllGatherV(ctx, int32Bytes(s.wire[:n*s.group.Size()]), s.sizes)
	return nil
}

// message returns the layouts and the lanes of the message of n int32 of a rank.
func (s *Sums) message(rank, n int) ([]lanes.Layout, []int32) {
	x, blocks := s.wire[rank*n:(rank+1)*n], lanes.Blocks(s.rows, s.width)
	return unsafe.Slice((*lanes.Layout)(unsafe.Pointer(unsafe.SliceData(x))), blocks), x[(blocks+3)/4:]
}

// Finish waits for the exchange, perhaps only when the ops that follow start (kernels.Await).
// It leaves the sums of this rank's rows in the first rows. The error is the group's, or the
// backend's if wider sums find no memory.
func (s *Sums) Finish(ctx context.Context) error {
	return s.meter.await(s.b, func() (bool, error) { return false, s.finish(ctx) }, func() {})
}

func (s *Sums) finish(ctx context.Context) error {
	if err := s.pending.Wait(); err != nil {
		return err
	}
	var wide bool
	switch {
	case s.op == AllGather:
		var err error
		if wide, err = s.addGathered(ctx); err != nil {
			return err
		}
	case s.group.Size() == 2:
		wide = s.addSwapped()
	default:
		wide = s.takeReduced()
	}
	s.meter.exchanged(s.op, wide)
	return nil
}

// addGathered adds the sums of the other ranks, and reports whether one needed more than
// one lane. If those of a rank did not fit, all ranks repeat the exchange with room for
// all lanes.
func (s *Sums) addGathered(ctx context.Context) (wide bool, err error) {
	if !kernels.ValuesMatter(s.b) {
		return false, nil
	}
	if s.rows*s.width == 0 {
		return false, nil
	}
	if !s.fit() {
		wide = true
		if err := s.gather(ctx, widest(s.width, s.rows)); err != nil {
			return false, err
		}
		if err := s.pending.Wait(); err != nil {
			return false, err
		}
	}
	most := 0
	for r, n := range s.sizes {
		layouts, from := s.message(r, n/4)
		for _, l := range layouts {
			most = max(most, l.Lanes())
		}
		if lanes.Len(layouts, s.width) > len(from) {
			return wide, fmt.Errorf("sums: rank %d announced more lanes than its message has: %w", r, distributed.ErrDesync)
		}
	}
	for r, n := range s.sizes {
		if layouts, from := s.message(r, n/4); r != s.group.Rank() {
			lanes.Add(s.sums[:s.rows*s.width], layouts, from, s.width, most > 2)
		}
	}
	return wide || most > 1, nil
}

// fit reports whether the messages of all ranks had room for their sums.
func (s *Sums) fit() bool {
	for r, n := range s.sizes {
		if layouts, _ := s.message(r, n/4); layouts[0] == lanes.Unfit {
			return false
		}
	}
	return true
}

// grown returns x with n elements of any content.
func grown[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

func int32Bytes(x []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
