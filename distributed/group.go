// Package distributed is how ranks combine what each has computed. A Group is a
// set of ranks with collective operations (all-reduce, reduce-scatter,
// all-gather, gather, broadcast, barrier) and messages; one concrete type for
// all transports. Under it a Driver moves bytes: the packages tcp, rdma and mpi
// bring drivers up, Local is a group of one rank, package memory is for tests.
// How ranks find each other, notice that one is gone and form the next group is
// package cluster.
//
// # Contract
//
// A Group has Size ranks, numbered from 0. Every operation but Send, Recv and
// SendRecv is collective: all ranks call the same operations in the same order
// with the same arguments but for the data. A group is used by one goroutine;
// a second operation that begins before the first has ended fails with ErrBusy
// and disturbs nothing.
//
// # Arithmetic
//
// Reductions have one result, the same bits on every rank and in every run,
// whatever the algorithm: elements are added in the order of the ranks, 0
// first. Float16 and BFloat16 are added in float32 and rounded once, at the
// end, to nearest even. Integers wrap. NaN propagates through AllMax and AllMin.
//
// # Asynchronous operations
//
// The Start methods begin an operation and return without waiting for other
// ranks. Until Pending.Wait has returned the buffers belong to the group and no
// other operation may begin. Errors, also those of the arguments, come from
// Wait.
//
// # Splitting
//
// Split makes groups of some of the ranks of another, which do all that a group
// does. A rank uses a group and those that were split off it one after the
// other, not two at once. A child fails and is closed with its parent; the
// parent outlives its children. Errors of a child name ranks by their number in
// it and by that in the outermost group, the world rank; verdicts and
// suspicions have the latter. A child may be of another kind than its parent,
// where the members' hardware has no room for more.
//
// # Failure
//
// Every wait ends by progress, by the failure of the group, by its context or
// by the deadline of the group. The first failure is final: the operation under
// way and every later one return the same cause. What an operation that failed
// has written is undefined. Recovery is another group, made by the next epoch.
package distributed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group is a set of ranks that compute together. See the package comment.
type Group struct {
	link   Link // the owner's
	driver Driver
	parent *Group // of a child, nil else
	notes  []string

	// Of the goroutine that uses the group; busy holds others off.
	busy     atomic.Bool
	held     bool   // by a split, which does its exchanges without letting go
	seq      uint64 // collective operations begun, the same on all ranks
	number   uint64 // operations begun, of all kinds
	splits   uint64 // splits begun
	op       Op
	startErr error // of Driver.Start, until Wait
	contexts contextWatch

	mu        sync.Mutex
	idle      *sync.Cond      // inside has become false
	inside    bool            // a goroutine is in Start or Wait of the driver
	freed     bool            // the driver is being closed
	active    bool            // an operation is under way
	doing     <-chan struct{} // Done of its context
	cause     error           // of the failure, nil before
	failed    chan struct{}   // closed with it
	suspicion *OpError        // the first one
	suspectAt time.Time
	quiet     bool // the group is being formed: nobody is told of suspicions
	told      bool // the link's owner was told of one
	closed    bool
	children  map[*Group]struct{}
	abort     context.CancelCauseFunc // ends the forming of a child that is under way
	closing   sync.Once
	closeErr  error

	ops, waiting, wire atomic.Int64
	traffic            traffic
}

// traffic counts bytes; drivers add to it by Op.Sent and Op.Received.
type traffic struct{ sent, received atomic.Int64 }

func newGroup(l Link) *Group {
	g := &Group{link: l, failed: make(chan struct{}), quiet: true}
	g.idle = sync.NewCond(&g.mu)
	g.contexts.ended = g.contextEnded
	return g
}

// Rank is the number of this rank in the group.
func (g *Group) Rank() int { return g.link.Rank }

// Size is the number of ranks.
func (g *Group) Size() int { return g.link.Size }

// Kind names the driver: "local", "tcp".
func (g *Group) Kind() string { return g.driver.Describe().Kind }

// Describe says what carries the group and how it was formed.
func (g *Group) Describe() Description {
	d := g.driver.Describe()
	d.Notes = append(d.Notes, g.notes...)
	return d
}

// AddNote adds a note to the description: for a transport that makes a group of
// another kind than was asked for. It is called before the group is used.
func (g *Group) AddNote(note string) { g.notes = append(g.notes, note) }

// Driver gives the driver, for what only its package knows.
func (g *Group) Driver() Driver { return g.driver }

// AllSum is an all-reduce: it leaves in dst, on every rank, the sum of src over
// all ranks. Both have the same length, a multiple of dt.Size(); dst may be src,
// other overlap is an error. Likewise AllMax and AllMin.
func (g *Group) AllSum(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllSum, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllMax is an all-reduce with the greatest element, see AllSum.
func (g *Group) AllMax(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllMax, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllMin is an all-reduce with the least element, see AllSum.
func (g *Group) AllMin(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllMin, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// StartAllSum begins an AllSum.
func (g *Group) StartAllSum(ctx context.Context, dst, src []byte, dt DType) Pending {
	return g.start(ctx, &Op{Kind: AllSum, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllGather leaves src of rank r in dst[r*len(src):]; dst has Size*len(src)
// bytes. src may be its own place in dst.
func (g *Group) AllGather(ctx context.Context, dst, src []byte) error {
	return g.run(ctx, &Op{Kind: AllGather, DType: NoDType, Dst: dst, Src: src}, checkGather(g.link.Size, g.link.Rank, dst, src))
}

// AllGatherV gathers parts of unlike length on every rank: dst is the parts of
// all ranks one after the other, sizes[r] bytes of rank r. The part of this rank
// is already in its place. sizes are the same on every rank, and may be 0.
func (g *Group) AllGatherV(ctx context.Context, dst []byte, sizes []int) error {
	return g.run(ctx, &Op{Kind: AllGatherV, DType: NoDType, Dst: dst, Sizes: sizes}, checkParts(g.link.Size, dst, sizes))
}

// StartAllGatherV begins an AllGatherV. sizes must stay unchanged until Wait.
func (g *Group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending {
	return g.start(ctx, &Op{Kind: AllGatherV, DType: NoDType, Dst: dst, Sizes: sizes}, checkParts(g.link.Size, dst, sizes))
}

// ReduceScatter sums src over all ranks and leaves a part of the sum on each: src
// is the parts of all ranks one after the other, sizes[r] bytes of rank r, dst
// the part of this rank. With nil sizes all parts have the length of dst. sizes
// are the same on every rank, multiples of dt.Size(), and may be 0. dst must not
// overlap src.
func (g *Group) ReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt DType) error {
	return g.run(ctx, &Op{Kind: ReduceScatter, DType: dt, Dst: dst, Src: src, Sizes: sizes},
		checkScatter(g.link.Size, g.link.Rank, dst, src, sizes, dt))
}

// StartReduceScatter begins a ReduceScatter. sizes must stay unchanged until
// Wait.
func (g *Group) StartReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt DType) Pending {
	return g.start(ctx, &Op{Kind: ReduceScatter, DType: dt, Dst: dst, Src: src, Sizes: sizes},
		checkScatter(g.link.Size, g.link.Rank, dst, src, sizes, dt))
}

// Gather gathers parts of unlike length on one rank: src is this rank's part of
// sizes[Rank] bytes; at the root dst is the parts of all ranks one after the
// other, elsewhere it is not used. At the root src may be its own place in dst.
// sizes are the same on every rank, and may be 0.
func (g *Group) Gather(ctx context.Context, dst, src []byte, sizes []int, root int) error {
	op, err := g.gather(dst, src, sizes, root)
	return g.run(ctx, &op, err)
}

// StartGather begins a Gather. sizes must stay unchanged until Wait.
func (g *Group) StartGather(ctx context.Context, dst, src []byte, sizes []int, root int) Pending {
	op, err := g.gather(dst, src, sizes, root)
	return g.start(ctx, &op, err)
}

func (g *Group) gather(dst, src []byte, sizes []int, root int) (Op, error) {
	if g.link.Rank != root {
		dst = nil
	}
	return Op{Kind: Gather, DType: NoDType, Dst: dst, Src: src, Sizes: sizes, Root: root},
		checkGatherTo(g.link.Size, g.link.Rank, dst, src, sizes, root)
}

// Send and Recv move bytes between two ranks; both sides give the same length.
// Two ranks that send to each other use SendRecv, which cannot block both.
func (g *Group) Send(ctx context.Context, src []byte, to int) error {
	return g.run(ctx, &Op{Kind: Send, DType: NoDType, Src: src, To: to, From: -1}, checkPeer(g.link.Size, g.link.Rank, to))
}

// Recv is the other side of Send.
func (g *Group) Recv(ctx context.Context, dst []byte, from int) error {
	return g.run(ctx, &Op{Kind: Recv, DType: NoDType, Dst: dst, To: -1, From: from}, checkPeer(g.link.Size, g.link.Rank, from))
}

// SendRecv sends to one rank and receives from one, which may be the same.
func (g *Group) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return g.run(ctx, &Op{Kind: SendRecv, DType: NoDType, Dst: dst, Src: src, To: to, From: from},
		checkSendRecv(g.link.Size, g.link.Rank, dst, from, src, to))
}

// Broadcast copies buf of the root to all.
func (g *Group) Broadcast(ctx context.Context, buf []byte, root int) error {
	return g.run(ctx, &Op{Kind: Broadcast, DType: NoDType, Dst: buf, Root: root}, checkRoot(g.link.Size, root))
}

// Barrier returns when every rank has called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.run(ctx, &Op{Kind: Barrier, DType: NoDType}, nil)
}

// Pending is an operation under way.
type Pending struct {
	g      *Group
	number uint64
	err    error // the operation has not begun
}

// Wait returns when the operation has ended. It is called once.
func (p Pending) Wait() error {
	if p.g == nil {
		return p.err
	}
	return p.g.await(p.number)
}

// Stats counts since the group was made. It may be called by any goroutine.
func (g *Group) Stats() Stats {
	return Stats{
		Ops: uint64(g.ops.Load()), Sent: uint64(g.traffic.sent.Load()), Received: uint64(g.traffic.received.Load()),
		Waiting: time.Duration(g.waiting.Load()), Wire: time.Duration(g.wire.Load()),
	}
}

// Stats are counts of a group since it was made.
type Stats struct {
	Ops      uint64 // operations that ended well
	Sent     uint64 // bytes given to the network, headers included
	Received uint64 // bytes taken from it
	// Waiting is the time in which an operation was waited for and nothing
	// of the slowest rank's data had come; Wire the time in which it was
	// waited for while data moved.
	Waiting time.Duration
	Wire    time.Duration
}

// Sub gives what was counted between the earlier stats and s.
func (s Stats) Sub(earlier Stats) Stats {
	return Stats{
		Ops: s.Ops - earlier.Ops, Sent: s.Sent - earlier.Sent, Received: s.Received - earlier.Received,
		Waiting: s.Waiting - earlier.Waiting, Wire: s.Wire - earlier.Wire,
	}
}
