package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// group is a mesh of connections. One goroutine uses it, busy holds others
// off. mu guards what the goroutines of a large operation share with it.
type group struct {
	transport  *Transport
	link       distributed.Link
	rank, size int
	opts       Options
	lanes      []*lane // [size], nil at this rank
	credit     int     // bytes ahead of a peer that has not shown up
	direct     int     // longest part written and read by the caller
	threshold  int     // bytes from which reductions are scattered, < 0 never
	measured   Calibration
	split      distributed.Splitter
	parted     func() // of a child: tells the parent that it is closed; nil else

	busy     atomic.Bool
	held     bool   // by a split, which does its exchanges without letting go
	seq      uint64 // collective operations begun, the same on all ranks
	number   uint64 // operations begun, of all kinds
	op       operation
	pending  pending
	blocks   [][]byte // [size] arguments of Reduce
	spin     spinner  // how long small operations look before they sleep
	contexts distributed.ContextWatch

	mu        sync.Mutex
	doing     <-chan struct{} // Done of the operation under way, nil between
	active    bool            // an operation is under way
	cause     error           // of the failure, nil before
	failed    chan struct{}   // closed with it
	suspicion *distributed.OpError
	suspectAt time.Time
	quiet     bool // nobody is told of suspicions yet
	told      bool // somebody was
	left      int  // goroutines that work on the operation
	reduced   int  // bytes of the target that are reduced
	reducing  bool // the reducer has work
	waiter    *sync.Cond
	reducer   *sync.Cond
	running   sync.WaitGroup

	ops, sent, received, waiting, wire atomic.Int64
}

// operation is what is under way: who sends what stands in the lanes.
type operation struct {
	name     string // "recv" where frames say opP2P
	code     opCode
	dtype    distributed.DType
	root     uint8
	seq      uint64
	number   uint64
	bulk     bool
	scatter  bool // the two phases
	inPlace  bool // src is dst, and all of it is sent
	reduce   bool
	with     reduce.Op
	src      []byte // own block of the reduction
	target   []byte // where it goes
	begun    time.Time
	deadline time.Time
	heard    time.Time // when the first byte of the last peer had come; mu
}

type pending struct{ g *group }

// Wait is described at distributed.Pending.
func (p *pending) Wait() error { return p.g.finish() }

// refused is an operation that has not begun.
type refused struct{ err error }

func (r refused) Wait() error { return r.err }

func newGroup(t *Transport, l distributed.Link, from *origin, conns []*net.TCPConn) (*group, error) {
	o := t.opts
	g := &group{
		transport: t, link: l, rank: l.Rank, size: l.Size, opts: o,
		credit: leastCredit, direct: o.Direct, threshold: o.Threshold,
		lanes: make([]*lane, l.Size), blocks: make([][]byte, l.Size),
		spin: newSpinner(o.Spin), failed: make(chan struct{}), quiet: true,
	}
	g.pending.g = g
	g.contexts.Ended = g.contextEnded
	g.split.Limit, g.split.World = l.OpTimeout/2, l.World
	if from != nil {
		g.split.ID, g.parted = from.child.ID, from.child.Closed
		g.measured = from.measured
	} else {
		g.split.ID = distributed.RootID(l.GroupID, l.Epoch)
	}
	g.waiter, g.reducer = sync.NewCond(&g.mu), sync.NewCond(&g.mu)
	for p, c := range conns {
		if p == g.rank {
			continue
		}
		lane, err := newLane(g, p, l.Addrs[p], c)
		if err != nil {
			return nil, err
		}
		g.lanes[p] = lane
	}
	for _, l := range g.lanes {
		if l != nil {
			g.running.Go(l.sender)
			g.running.Go(l.receiver)
		}
	}
	g.running.Go(g.reduceLoop)
	return g, nil
}

func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return g.size }
func (g *group) Kind() string { return "tcp" }

// Stats is described at distributed.Group.
func (g *group) Stats() distributed.Stats {
	return distributed.Stats{
		Ops: uint64(g.ops.Load()), Sent: uint64(g.sent.Load()), Received: uint64(g.received.Load()),
		Waiting: time.Duration(g.waiting.Load()), Wire: time.Duration(g.wire.Load()),
	}
}

// Fail is described at distributed.Group. The connections are closed: that
// wakes all who wait, here and on the other ranks.
func (g *group) Fail(cause error) {
	if cause == nil {
		cause = distributed.ErrClosed
	}
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	close(g.failed)
	g.waiter.Broadcast()
	g.reducer.Broadcast()
	for _, l := range g.lanes {
		if l != nil {
			l.wake.Broadcast()
			l.feed.Broadcast()
		}
	}
	g.mu.Unlock()
	for _, l := range g.lanes {
		if l != nil {
			_ = l.conn.Close()
		}
	}
	g.split.Fail(cause)
}

// Close is described at distributed.Group.
func (g *group) Close() error {
	g.Fail(distributed.ErrClosed)
	g.running.Wait()
	g.contexts.Stop()
	err := g.split.Close()
	if g.parted != nil {
		g.parted()
	}
	return err
}

// wrap makes the error of the operation around a cause.
func (g *group) wrap(cause error) error {
	if e, ok := cause.(*distributed.OpError); ok {
		return e // the operation that failed; later ones return the same
	}
	e := &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: -1, World: g.split.World, Elapsed: time.Since(g.op.begun), Err: cause}
	e.Peer = g.split.Culprit(cause)
	return e
}

// begin takes the group for an operation, once its arguments are good.
func (g *group) begin(ctx context.Context, name string, args error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return &distributed.OpError{Op: name, Rank: g.rank, Peer: -1, World: g.split.World, Err: distributed.ErrBusy}
	}
	return g.enter(ctx, name, args)
}

// enter is begin for who has the group.
func (g *group) enter(ctx context.Context, name string, args error) error {
	g.op = operation{name: name, number: g.number + 1, begun: time.Now(), dtype: noDType}
	err := args
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		g.contexts.Begin(ctx)
	}
	g.mu.Lock()
	if g.cause != nil {
		err = g.cause
	}
	if err == nil {
		g.active, g.doing = true, ctx.Done()
	}
	g.mu.Unlock()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it ended before the watch could see the operation
	}
	if err != nil {
		err = g.wrap(err)
		g.release()
		return err
	}
	g.number++
	g.op.deadline = g.op.begun.Add(g.link.OpTimeout)
	return nil
}

func (g *group) release() {
	g.mu.Lock()
	g.active, g.doing = false, nil
	g.mu.Unlock()
	if !g.held {
		g.busy.Store(false)
	}
}

// contextEnded fails the group if an operation with the context is under way.
func (g *group) contextEnded(done <-chan struct{}, cause error) {
	g.mu.Lock()
	hit := g.active && g.doing == done
	g.mu.Unlock()
	if hit {
		g.Fail(cause)
	}
}

// suspect records that something is wrong with a peer. Only the first one
// counts, and none after a failure.
func (g *group) suspect(peer int, err error) {
	g.mu.Lock()
	if g.cause != nil || g.suspicion != nil {
		g.mu.Unlock()
		return
	}
	g.suspicion = &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: peer, Addr: g.link.Addrs[peer],
		World: g.split.World, Elapsed: time.Since(g.op.begun), Err: err}
	g.suspectAt = time.Now()
	g.waiter.Broadcast()
	g.mu.Unlock()
	g.tell(peer, err)
}

// tell passes a suspicion of this group, or of a child, on to the owner of the
// link: once.
func (g *group) tell(peer int, err error) {
	g.mu.Lock()
	tell := !g.quiet && !g.told && g.cause == nil
	g.told = g.told || tell
	g.mu.Unlock()
	if tell && g.link.Suspect != nil {
		g.link.Suspect(peer, err)
	}
}

// verdict waits for the cause of the failure after a suspicion: Fail with the
// verdict of all, or the suspicion itself when that does not come in time.
func (g *group) verdict() {
	g.mu.Lock()
	s, at, quiet := g.suspicion, g.suspectAt, g.quiet
	g.mu.Unlock()
	if s == nil {
		return
	}
	if !quiet && g.link.VerdictTimeout > 0 {
		timer := time.NewTimer(time.Until(at.Add(g.link.VerdictTimeout)))
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	g.Fail(s)
}

// trouble suspects the peer of an error of its connection; at a deadline, that
// which has not delivered.
func (g *group) trouble(l *lane, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		peer, who := g.undelivered(l.peer)
		g.suspect(peer, fmt.Errorf("%w: not delivered within %v: %s", distributed.ErrTimeout, g.link.OpTimeout, who))
		return
	}
	g.suspect(l.peer, laneError(err))
}

// laneError says what an error of a connection means.
func laneError(err error) error {
	switch {
	case errors.Is(err, distributed.ErrDesync):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: connection closed", distributed.ErrPeerGone)
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	return fmt.Errorf("%w: connection lost: %v", distributed.ErrPeerGone, err)
}

// finish waits for the end of the operation under way.
func (g *group) finish() error {
	if !g.busy.Load() {
		return &distributed.OpError{Op: "wait", Rank: g.rank, Peer: -1, World: g.split.World, Err: fmt.Errorf("%w: Wait was called before", distributed.ErrArgument)}
	}
	entered := time.Now()
	var ok bool
	if g.op.bulk {
		ok = g.waitBulk()
	} else {
		ok = g.waitDirect()
	}
	if !ok {
		g.verdict()
		g.settleBulk() // nothing touches the caller's buffers after this
		g.mu.Lock()
		cause := g.cause
		g.mu.Unlock()
		err := g.wrap(cause)
		g.release()
		return err
	}
	end := time.Now()
	heard := g.op.heard
	if heard.Before(entered) {
		heard = entered
	}
	g.waiting.Add(int64(heard.Sub(entered)))
	g.wire.Add(int64(end.Sub(heard)))
	g.ops.Add(1)
	for _, l := range g.lanes {
		if l != nil {
			l.settle(g.op.scatter)
		}
	}
	g.release()
	return nil
}
