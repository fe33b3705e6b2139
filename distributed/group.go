// Package distributed combines what each rank has computed. A Group is a set of ranks
// with collective operations (all-reduce, reduce-scatter, all-gather, gather,
// broadcast, barrier) and point-to-point messages. It is one concrete type for all
// transports; below it a Driver moves the bytes. The packages tcp, rdma and mpi make
// drivers, Local is a group of one rank, and package memory is for tests. Package
// cluster finds the ranks, notices that one is lost, and forms the next group.
//
// Transport.Connect makes this rank's Group from the Link of an epoch. After that
// every rank calls the same operations, and Close at the end; the example of Group
// shows two ranks.
//
// # Contract
//
// A Group has Size ranks, numbered from 0. Every operation but Send, Recv and
// SendRecv is collective: all ranks call the same operations in the same order,
// with arguments that differ only in the data. A group is used by one goroutine;
// a second operation begun before the first has ended fails with ErrBusy and
// leaves the first undisturbed.
//
// # Arithmetic
//
// The result of a reduction has the same bits on every rank and in every run,
// whatever the algorithm: elements are added in rank order, rank 0 first. Float16
// and BFloat16 are added in float32 and rounded once, at the end, to nearest
// even. Integers wrap. NaN propagates through AllMax and AllMin.
//
// # Asynchronous operations
//
// The Start methods begin an operation and return without waiting for other
// ranks. Until Pending.Wait has returned, the buffers belong to the group and no
// other operation may begin. Wait reports all errors, including those of the
// arguments.
//
// # Splitting
//
// Split makes groups of some of the ranks of another group; they do everything
// that a group does. A rank uses a group and its children one at a time, never
// two at once. A child fails and is closed with its parent; the parent outlives
// its children. Errors of a child give both the rank in the child and the rank in
// the outermost group, the world rank; verdicts and suspicions use world ranks. A
// child may be of another kind than its parent when the members' hardware has no
// capacity for more of the parent's kind.
//
// # Failure
//
// Every wait ends: by progress, by the failure of the group, by its context or by
// the operation's deadline. The first failure is final: the current operation and
// every later one return the same cause. The output of a failed operation is
// undefined. Recovery needs a new group, which the next epoch makes.
package distributed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group is a set of ranks that compute together. See the package comment.
type Group struct {
	link   Link // as passed to Form
	driver Driver
	parent *Group // of a child, else nil
	notes  []string

	// Used by the goroutine that uses the group; busy keeps others out.
	busy     atomic.Bool
	held     bool   // by a split, which keeps the group for all of its exchanges
	seq      uint64 // collective operations begun, the same on all ranks
	number   uint64 // operations begun, of all kinds
	splits   uint64 // splits begun
	op       Op
	startErr error // of Driver.Start, until Wait
	contexts contextWatch

	mu        sync.Mutex
	idle      *sync.Cond      // signals that inside has become false
	inside    bool            // a goroutine is in Start or Wait of the driver
	freed     bool            // the driver is being closed
	active    bool            // an operation is in progress
	doing     <-chan struct{} // Done of its context
	cause     error           // of the failure, nil before
	failed    chan struct{}   // closed with it
	suspicion *OpError        // the first one
	suspectAt time.Time
	quiet     bool // the group is being formed: suspicions are not reported
	reported  bool // the link's owner has received a suspicion
	closed    bool
	children  map[*Group]struct{}
	abort     context.CancelCauseFunc // cancels the child being formed, if any
	closing   sync.Once
	closeErr  error

	ops, waiting, wire atomic.Int64
	traffic            traffic
}

// traffic counts bytes; drivers add to it through Op.Sent and Op.Received.
type traffic struct{ sent, received atomic.Int64 }

func newGroup(l Link) *Group {
	g := &Group{link: l, failed: make(chan struct{}), quiet: true}
	g.idle = sync.NewCond(&g.mu)
	g.contexts.ended = g.contextEnded
	return g
}

// Rank returns the number of this rank in the group.
func (g *Group) Rank() int { return g.link.Rank }

// Name names a rank of the group for people.
func (g *Group) Name(rank int) string { return g.link.Name(rank) }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.link.Size }

// Kind returns the driver's name, such as "local" or "tcp".
func (g *Group) Kind() string { return g.driver.Describe().Kind }

// Describe returns what carries the group and how it was formed.
func (g *Group) Describe() Description {
	d := g.driver.Describe()
	d.Notes = append(d.Notes, g.notes...)
	return d
}

// AddNote adds a note to the description, for a transport that makes a group of
// another kind than requested. It must be called before the group is used.
func (g *Group) AddNote(note string) { g.notes = append(g.notes, note) }

// Driver returns the driver, for details that only its package knows.
func (g *Group) Driver() Driver { return g.driver }

// Retransmits returns how many segments of data to a rank were retransmitted since the
// group was made; -1 if the system does not count them.
func (g *Group) Retransmits(rank int) int64 {
	if d, ok := g.driver.(Retransmitter); ok {
		return d.Retransmits(rank)
	}
	return -1
}

// AllSum is an all-reduce: it leaves in dst, on every rank, the sum of src over
// all ranks. Both have the same length, a multiple of dt.Size(). dst may be
// src; any other overlap is an error. The same holds for AllMax and AllMin.
func (g *Group) AllSum(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllSum, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllMax is an all-reduce that takes the greatest of each element; see AllSum.
func (g *Group) AllMax(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllMax, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllMin is an all-reduce that takes the least of each element; see AllSum.
func (g *Group) AllMin(ctx context.Context, dst, src []byte, dt DType) error {
	return g.run(ctx, &Op{Kind: AllMin, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// StartAllSum begins an AllSum.
func (g *Group) StartAllSum(ctx context.Context, dst, src []byte, dt DType) Pending {
	return g.start(ctx, &Op{Kind: AllSum, DType: dt, Dst: dst, Src: src}, checkReduce(dst, src, dt))
}

// AllGather leaves src of rank r in dst[r*len(src):]; dst has Size*len(src)
// bytes. src may be this rank's part of dst.
func (g *Group) AllGather(ctx context.Context, dst, src []byte) error {
	return g.run(ctx, &Op{Kind: AllGather, DType: NoDType, Dst: dst, Src: src}, checkGather(g.link.Size, g.link.Rank, dst, src))
}

// AllGatherV gathers parts of unequal length on every rank: dst holds the parts
// of all ranks one after the other, sizes[r] bytes of rank r. This rank's part
// is already in its place. sizes are the same on every rank; they may be 0.
func (g *Group) AllGatherV(ctx context.Context, dst []byte, sizes []int) error {
	return g.run(ctx, &Op{Kind: AllGatherV, DType: NoDType, Dst: dst, Sizes: sizes}, checkParts(g.link.Size, dst, sizes))
}

// StartAllGatherV begins an AllGatherV. sizes must stay unchanged until Wait.
func (g *Group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending {
	return g.start(ctx, &Op{Kind: AllGatherV, DType: NoDType, Dst: dst, Sizes: sizes}, checkParts(g.link.Size, dst, sizes))
}

// ReduceScatter sums src over all ranks and leaves one part of the sum on each:
// src holds the parts of all ranks one after the other, sizes[r] bytes for rank
// r, and dst receives this rank's part. With nil sizes all parts have the
// length of dst. sizes are the same on every rank, multiples of dt.Size(), and
// may be 0. dst must not overlap src.
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

// Gather gathers parts of unequal length on one rank: src is this rank's part,
// sizes[Rank] bytes. At the root, dst receives the parts of all ranks one after
// the other, and src may be the root's own part of dst; on other ranks dst is
// not used. sizes are the same on every rank; they may be 0.
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

// Send sends src to one rank, which calls Recv with a buffer of the same length. Two
// ranks that send to each other use SendRecv, because Send on both could block both.
func (g *Group) Send(ctx context.Context, src []byte, to int) error {
	return g.run(ctx, &Op{Kind: Send, DType: NoDType, Src: src, To: to, From: -1}, checkPeer(g.link.Size, g.link.Rank, to))
}

// Recv receives from one rank; see Send.
func (g *Group) Recv(ctx context.Context, dst []byte, from int) error {
	return g.run(ctx, &Op{Kind: Recv, DType: NoDType, Dst: dst, To: -1, From: from}, checkPeer(g.link.Size, g.link.Rank, from))
}

// SendRecv sends to one rank and receives from one, which may be the same.
func (g *Group) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return g.run(ctx, &Op{Kind: SendRecv, DType: NoDType, Dst: dst, Src: src, To: to, From: from},
		checkSendRecv(g.link.Size, g.link.Rank, dst, from, src, to))
}

// StartMessages begins to send src to one rank and to receive dst from one rank, which may
// be the same. With to or from -1 it only receives or only sends.
func (g *Group) StartMessages(ctx context.Context, dst []byte, from int, src []byte, to int) Pending {
	switch {
	case from < 0:
		return g.start(ctx, &Op{Kind: Send, DType: NoDType, Src: src, To: to, From: -1}, checkPeer(g.link.Size, g.link.Rank, to))
	case to < 0:
		return g.start(ctx, &Op{Kind: Recv, DType: NoDType, Dst: dst, To: -1, From: from}, checkPeer(g.link.Size, g.link.Rank, from))
	}
	return g.start(ctx, &Op{Kind: SendRecv, DType: NoDType, Dst: dst, Src: src, To: to, From: from},
		checkSendRecv(g.link.Size, g.link.Rank, dst, from, src, to))
}

// Broadcast copies the root's buf to all ranks.
func (g *Group) Broadcast(ctx context.Context, buf []byte, root int) error {
	return g.run(ctx, &Op{Kind: Broadcast, DType: NoDType, Dst: buf, Root: root}, checkRoot(g.link.Size, root))
}

// Barrier returns when every rank has called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.run(ctx, &Op{Kind: Barrier, DType: NoDType}, nil)
}

// Pending is an operation in progress.
type Pending struct {
	g      *Group
	number uint64
	err    error // why the operation has not begun
}

// Wait returns when the operation has ended. It must be called exactly once.
func (p Pending) Wait() error {
	if p.g == nil {
		return p.err
	}
	return p.g.await(p.number)
}

// Stats returns the counts since the group was made. Any goroutine may call it.
func (g *Group) Stats() Stats {
	return Stats{
		Ops: uint64(g.ops.Load()), Sent: uint64(g.traffic.sent.Load()), Received: uint64(g.traffic.received.Load()),
		Waiting: time.Duration(g.waiting.Load()), Wire: time.Duration(g.wire.Load()),
	}
}

// Stats are the counts of a group since it was made.
type Stats struct {
	Ops      uint64 // operations completed without error
	Sent     uint64 // bytes handed to the network, headers included
	Received uint64 // bytes received from the network, headers included
	// Waiting is the time spent in Wait before any data of the slowest rank
	// was received; Wire is the time spent there while data moved.
	Waiting time.Duration
	Wire    time.Duration
}

// Sub returns the counts since the earlier stats.
func (s Stats) Sub(earlier Stats) Stats {
	return Stats{
		Ops: s.Ops - earlier.Ops, Sent: s.Sent - earlier.Sent, Received: s.Received - earlier.Received,
		Waiting: s.Waiting - earlier.Waiting, Wire: s.Wire - earlier.Wire,
	}
}
