package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/bringup"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/liveness"
	"ringmaster/distributed/rdma/verbs"
)

// group is a distributed.Group. One goroutine uses it, busy holds others off;
// an operation that was started and is not small is worked on by the group's
// own goroutine until Wait. mu guards what Fail and the liveness connections share with it.
type group struct {
	link       distributed.Link
	rank, size int
	t          *Transport
	rails      *bringup.Rails
	eng        *engine.Engine
	liveness   *liveness.Connections
	side       distributed.Group
	split      distributed.Splitter
	parted     func() // of a child: tells the parent that it is closed; nil else

	busy     atomic.Bool
	held     bool   // by a split, which does its exchanges without letting go
	seq      uint64 // collective operations begun, the same on all ranks
	number   uint64 // operations begun
	op       operation
	pending  pending
	contexts distributed.ContextWatch
	work     chan struct{} // to the worker: the operation is its own
	ended    chan bool     // from it: how it went
	quit     chan struct{} // ends the worker

	mu        sync.Mutex
	idle      *sync.Cond // engine has become false
	engine    bool       // a goroutine is in the engine
	doing     <-chan struct{}
	active    bool // an operation is under way, its memory is in use
	cause     error
	failed    chan struct{}
	suspicion *distributed.OpError
	suspectAt time.Time
	departed  []time.Time // [size] when a rank said goodbye; zero: it has not
	quiet     bool        // nobody is told of suspicions yet
	told      bool        // somebody was
	closed    bool
	closing   sync.Once
	closeErr  error
	running   sync.WaitGroup

	ops, sent, received, waiting, wire atomic.Int64
}

// operation is what is under way.
type operation struct {
	name     string
	number   uint64
	task     *engine.Task // nil if there is nothing to move
	src, dst []byte
	begun    time.Time
	deadline time.Time
	done     bool       // the task has ended well
	runs     bool       // the task has begun and can go on
	handed   bool       // to the worker
	side     chan error // how the part over the side channel went
	peer, to int        // of a message: the other rank, and the one sent to; else -1
}

type pending struct{ g *group }

// Wait is described at distributed.Pending.
func (p *pending) Wait() error { return p.g.finish() }

// refused is an operation that has not begun.
type refused struct{ err error }

func (r refused) Wait() error { return r.err }

var _ distributed.Group = (*group)(nil)

func newGroup(t *Transport, l distributed.Link, side distributed.Group, rails *bringup.Rails, child *distributed.Child) (*group, error) {
	eng, err := engine.New(engine.Config{Plan: rails.Plan, Rank: l.Rank, Epoch: l.Epoch, Group: rails.Group, Spin: t.opts.Tuning.Spin,
		Force: rails.Rules.Force, Conns: rails.Conns})
	if err != nil {
		return nil, err
	}
	g := &group{
		link: l, rank: l.Rank, size: l.Size, t: t, rails: rails, eng: eng, liveness: rails.Liveness, side: side,
		failed: make(chan struct{}), quiet: true, departed: make([]time.Time, l.Size),
		work: make(chan struct{}, 1), ended: make(chan bool, 1), quit: make(chan struct{}),
	}
	g.split.ID, g.split.World, g.split.Limit = distributed.RootID(l.GroupID, l.Epoch), l.World, l.OpTimeout/2
	if child != nil {
		g.split.ID, g.parted = child.ID, child.Closed
	}
	g.idle = sync.NewCond(&g.mu)
	g.pending.g = g
	g.contexts.Ended = g.contextEnded
	g.liveness.Watch(g.gone)
	g.running.Go(g.worker)
	return g, nil
}

func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return g.size }
func (g *group) Kind() string { return "rdma" }

// Stats is described at distributed.Group.
func (g *group) Stats() distributed.Stats {
	return distributed.Stats{
		Ops: uint64(g.ops.Load()), Sent: uint64(g.sent.Load()), Received: uint64(g.received.Load()),
		Waiting: time.Duration(g.waiting.Load()), Wire: time.Duration(g.wire.Load()),
	}
}

// begin takes the group for an operation, once its arguments are good.
func (g *group) begin(ctx context.Context, name string, args error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return &distributed.OpError{Op: name, Rank: g.rank, Peer: -1, World: g.split.World, Err: distributed.ErrBusy}
	}
	return g.take(ctx, name, args)
}

// take is begin for who has the group.
func (g *group) take(ctx context.Context, name string, args error) error {
	g.mu.Lock()
	g.op = operation{name: name, number: g.number + 1, begun: time.Now(), peer: -1, to: -1}
	g.mu.Unlock()
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
	g.op.src, g.op.dst = nil, nil
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

// Close is described at distributed.Group. Children first: what is under way is
// stopped, what was sent may leave, then queue pairs and memory are given back,
// on a goroutine that is waited for no longer than the driver's calls are.
func (g *group) Close() error {
	g.closing.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *group) close() error {
	g.mu.Lock()
	g.closed = true
	well := g.cause == nil && g.suspicion == nil && !g.active
	g.mu.Unlock()
	var children error
	if well {
		children = g.split.Close() // before they fail, so that what they sent may leave
		g.eng.Drain(drainLimit)
	}
	g.Fail(distributed.ErrClosed)
	children = errors.Join(children, g.split.Close())
	g.mu.Lock()
	for g.engine {
		g.idle.Wait()
	}
	g.mu.Unlock()
	g.contexts.Stop()
	close(g.quit)
	g.running.Wait()
	g.liveness.Wait()
	_ = g.side.Close()
	done := make(chan error, 1)
	go func() { done <- g.teardown() }()
	timer := time.NewTimer(verbs.DefaultLimit)
	defer timer.Stop()
	var err error
	select {
	case err = <-done:
	case <-timer.C:
		err = fmt.Errorf("%w: rdma: the driver does not give the queue pairs back within %v; they are left behind", distributed.ErrTimeout, verbs.DefaultLimit)
	}
	if g.parted != nil {
		g.parted()
	}
	return errors.Join(children, err)
}

// teardown frees everything; its end is that of the driver's calls, each of
// which is bounded.
func (g *group) teardown() error {
	err := g.rails.Destroy()
	g.eng.Free()
	return err
}
