package rdma

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
)

// group is a distributed.Group. One goroutine uses it, busy holds others off;
// an operation that was started and is not small is worked on by the group's
// own goroutine until Wait. mu guards what Fail and the watch share with it.
type group struct {
	link       distributed.Link
	rank, size int
	t          *Transport
	session    uint64
	tag        int // bytes at the end of messages with data
	cfg        plan.Config
	force      plan.Algorithm
	topo       matrix.Topology
	cables     matrix.Matrix
	notes      []string
	ends       []*end
	byPeer     [][]*end // [size][rails]
	slabs      []*slab
	side       distributed.Group
	watch      *watch
	flag       *int32 // stops the engine
	scratch    scratchMemory
	jobs       jobCache

	busy     atomic.Bool
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
	quiet     bool
	closed    bool
	running   sync.WaitGroup

	ops, sent, received, waiting, wire atomic.Int64
}

// operation is what is under way.
type operation struct {
	name     string
	number   uint64
	job      *job // nil if there is nothing to move
	src, dst []byte
	begun    time.Time
	deadline time.Time
	done     bool // the job has ended well
	runs     bool // the job has begun and can go on
	handed   bool // to the worker
	side     chan error
	peer     int // of a message, else -1
}

type pending struct{ g *group }

// Wait is described at distributed.Pending.
func (p *pending) Wait() error { return p.g.finish() }

// refused is an operation that has not begun.
type refused struct{ err error }

func (r refused) Wait() error { return r.err }

var _ distributed.Group = (*group)(nil)

func newGroup(b *bootstrap) (*group, error) {
	g := &group{
		link: b.link, rank: b.link.Rank, size: b.link.Size, t: b.t, session: b.session, tag: b.tag(), force: b.rule.Force,
		topo: b.topo, cables: b.matrix, notes: b.notes, ends: b.ends, slabs: b.slabs, side: b.side, watch: b.watch,
		flag: newFlag(), failed: make(chan struct{}), quiet: true,
		byPeer: make([][]*end, b.link.Size), work: make(chan struct{}, 1), ended: make(chan bool, 1), quit: make(chan struct{}),
		cfg: plan.Config{Topology: topology(b.topo, b.link.Size), Cap: b.cap, Slots: b.rule.Slots, OneRail: b.rule.OneRail, Model: b.rule.Model, Tag: int64(b.tag())},
	}
	g.idle = sync.NewCond(&g.mu)
	g.pending.g = g
	g.contexts.Ended = g.contextEnded
	g.jobs.limit = 128
	sort.SliceStable(g.ends, func(i, j int) bool { return g.ends[i].index < g.ends[j].index })
	for _, e := range g.ends {
		g.byPeer[e.peer] = append(g.byPeer[e.peer], e)
	}
	if _, err := g.cfg.Digest(); err != nil {
		return g, err
	}
	g.watch.start(g.gone)
	g.running.Go(g.worker)
	b.ends, b.slabs, b.watch = nil, nil, nil // they are the group's
	return g, nil
}

// release0 frees a group that no rank has come to use.
func (g *group) release0() { _ = g.Close() }

// loud: from here on suspicions are told.
func (g *group) loud() {
	g.mu.Lock()
	g.quiet = false
	s := g.suspicion
	g.mu.Unlock()
	if s != nil && g.link.Suspect != nil {
		g.link.Suspect(s.Peer, s.Err)
	}
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

// Fail is described at distributed.Group. The other ranks are told why.
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
	atomic.StoreInt32(g.flag, 1)
	g.mu.Unlock()
	g.side.Fail(cause)
	culprit := -1
	var op *distributed.OpError
	var peer *distributed.PeerError
	if errors.As(cause, &peer) {
		culprit = peer.Rank
	} else if errors.As(cause, &op) {
		culprit = op.Peer
	}
	text := cause.Error()
	if errors.Is(cause, distributed.ErrClosed) {
		text = "connection closed"
	}
	g.watch.giveUp(culprit, text)
}

// gone is what the watch has seen of a peer.
func (g *group) gone(peer, culprit int, text string) {
	if culprit == peer || culprit == g.rank || culprit < 0 || culprit >= g.size {
		if text != "connection closed" {
			text = "it gave up: " + text
		}
		g.suspect(peer, fmt.Errorf("%w: %s", distributed.ErrPeerGone, text))
		return
	}
	g.suspect(culprit, fmt.Errorf("%w: rank %d says: %s", distributed.ErrPeerGone, peer, text))
}

// suspect records that something is wrong with a peer. Only the first one
// counts, and none after a failure.
func (g *group) suspect(peer int, err error) {
	g.mu.Lock()
	if g.cause != nil || g.suspicion != nil {
		g.mu.Unlock()
		return
	}
	s := &distributed.OpError{Op: "idle", Rank: g.rank, Peer: peer, Err: err}
	if g.active {
		s.Op, s.Seq, s.Elapsed = g.op.name, g.op.number, time.Since(g.op.begun)
	}
	if peer >= 0 {
		s.Addr = g.link.Addrs[peer]
	}
	g.suspicion, g.suspectAt = s, time.Now()
	quiet := g.quiet
	atomic.StoreInt32(g.flag, 1)
	g.mu.Unlock()
	if !quiet && g.link.Suspect != nil {
		g.link.Suspect(peer, err)
	}
}

func (g *group) troubled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause != nil || g.suspicion != nil
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
	if s.Op == "idle" { // it is the operation under way that fails
		x := *s
		x.Op, x.Seq, x.Elapsed = g.op.name, g.op.number, time.Since(g.op.begun)
		s = &x
	}
	g.Fail(s)
}

// wrap makes the error of the operation around a cause.
func (g *group) wrap(cause error) error {
	if e, ok := cause.(*distributed.OpError); ok {
		return e // the operation that failed; later ones return the same
	}
	e := &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: -1, Elapsed: time.Since(g.op.begun), Err: cause}
	var p *distributed.PeerError
	if errors.As(cause, &p) {
		e.Peer = p.Rank
	}
	return e
}

// begin takes the group for an operation, once its arguments are good.
func (g *group) begin(ctx context.Context, name string, args error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return &distributed.OpError{Op: name, Rank: g.rank, Peer: -1, Err: distributed.ErrBusy}
	}
	g.mu.Lock()
	g.op = operation{name: name, number: g.number + 1, begun: time.Now(), peer: -1}
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
	g.busy.Store(false)
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

// Close is described at distributed.Group. What is under way is stopped, what
// was sent may leave, then queue pairs and memory are given back, on a goroutine
// that is waited for no longer than the driver's calls are.
func (g *group) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	well := g.cause == nil && g.suspicion == nil && !g.active
	g.mu.Unlock()
	if well {
		deadline := time.Now().Add(drainLimit)
		for _, e := range g.ends {
			e.drain(until(deadline))
		}
	}
	g.Fail(distributed.ErrClosed)
	g.mu.Lock()
	for g.engine {
		g.idle.Wait()
	}
	g.mu.Unlock()
	g.contexts.Stop()
	close(g.quit)
	g.running.Wait()
	g.watch.running.Wait()
	_ = g.side.Close()
	done := make(chan error, 1)
	go func() { done <- g.teardown() }()
	timer := time.NewTimer(g.t.limit())
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: rdma: the driver does not give the queue pairs back within %v; they are left behind", distributed.ErrTimeout, g.t.limit())
	}
}

// teardown frees everything; its end is that of the driver's calls, each of
// which is bounded.
func (g *group) teardown() error {
	err := destroy(g.ends, g.slabs)
	g.jobs.free()
	g.scratch.free()
	freeFlag(g.flag)
	g.flag = nil
	return err
}
