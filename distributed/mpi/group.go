package mpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ringmaster/distributed"
)

// group is a communicator of its own. One goroutine uses it, busy holds others
// off; the owner runs the operations.
type group struct {
	world      *World
	link       distributed.Link
	opts       Options
	rank, size int
	ranks      []int32 // [Size] in the communicator
	tag        int32   // of data; that of farewells is the next
	tags       *tags   // of all groups of the communicator
	split      distributed.Splitter
	onClose    func() // of a child: tells the parent that it is closed; nil else

	// Of who holds owner.calls.
	comm  unsafe.Pointer
	sets  [2]round   // messages of one round and of the next
	watch []message  // [1] the farewell of a peer
	gone  []*parting // [Size] peers that have said farewell
	bye   bool       // our own farewell is said

	busy    atomic.Bool
	held    bool // by a split, which does its exchanges without letting go
	op      operation
	pending pending
	small   *exchange  // the operation under way, if the caller runs it itself
	done    chan error // else the owner's word about it

	seq, number uint64
	contexts    distributed.ContextWatch

	stop flag // raised with the failure: the owner looks at it

	mu        sync.Mutex
	doing     <-chan struct{} // Done of the operation under way
	active    bool
	cause     error         // of the failure, nil before
	failed    chan struct{} // closed with it
	left      chan struct{} // closed when the owner has left the communicator
	quiet     bool          // nobody is told of suspicions: the group is being made
	suspected bool

	ops, sent, received, waiting, wire atomic.Int64
}

// parting is the end of a peer.
type parting struct {
	why string
	at  time.Time
}

// operation is what is under way.
type operation struct {
	name     string
	number   uint64
	begun    time.Time
	deadline time.Time
	heard    time.Time // when the first message of the last peer had come
}

type pending struct{ g *group }

// Wait is described at distributed.Pending.
func (p *pending) Wait() error { return p.g.finish() }

// refused is an operation that has not begun.
type refused struct{ err error }

func (r refused) Wait() error { return r.err }

var _ distributed.Group = (*group)(nil)

func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return g.size }
func (g *group) Kind() string { return "mpi" }

// Stats is described at distributed.Group.
func (g *group) Stats() distributed.Stats {
	return distributed.Stats{
		Ops: uint64(g.ops.Load()), Sent: uint64(g.sent.Load()), Received: uint64(g.received.Load()),
		Waiting: time.Duration(g.waiting.Load()), Wire: time.Duration(g.wire.Load()),
	}
}

// Fail is described at distributed.Group. The owner says farewell to the other
// ranks and leaves the communicator.
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
	g.mu.Unlock()
	g.stop.raise()
	if !g.world.owner.post(g.depart) {
		close(g.left) // MPI has ended
	}
	g.split.Fail(cause)
}

// departLimit bounds how long Close waits for the owner.
const departLimit = 2 * time.Second

// Close is described at distributed.Group.
func (g *group) Close() error {
	g.Fail(distributed.ErrClosed)
	g.contexts.Stop()
	err := g.split.Close()
	if g.onClose != nil {
		g.onClose()
	}
	limit := time.NewTimer(departLimit)
	defer limit.Stop()
	select {
	case <-g.left:
		g.world.mu.Lock()
		delete(g.world.groups, g)
		g.world.mu.Unlock()
		return err
	case <-limit.C:
		return fmt.Errorf("%w: MPI has not let go of the group of epoch %d for %v", distributed.ErrTimeout, g.link.Epoch, departLimit)
	}
}

// wrap makes the error of the operation around a cause.
func (g *group) wrap(cause error) error {
	if e, ok := cause.(*distributed.OpError); ok {
		return e // the operation that failed; later ones return the same
	}
	return &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: g.split.Culprit(cause), World: g.split.World,
		Elapsed: time.Since(g.op.begun), Err: cause}
}

// blame is the error of the operation under way when a peer is at fault.
func (g *group) blame(peer int, err error) *distributed.OpError {
	return &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: peer, Addr: g.link.Addrs[peer],
		World: g.split.World, Elapsed: time.Since(g.op.begun), Err: err}
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
	g.op = operation{name: name, number: g.number + 1, begun: time.Now()}
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

// launch runs the exchanges of an operation, one after the other. One of a
// single round is begun here and ended by the caller's Wait, which saves waking
// a thread twice; anything larger is the owner's, and goes on meanwhile.
func (g *group) launch(xs ...*exchange) {
	if len(xs) == 1 && g.rounds(xs[0]) == 1 {
		g.small = xs[0]
		g.world.owner.calls.Lock()
		defer g.world.owner.calls.Unlock()
		if !g.bye {
			g.load(g.small, 0)
			g.post(&g.sets[0])
		}
		return
	}
	posted := g.world.owner.post(func() { g.done <- g.all(xs) })
	if !posted {
		g.done <- distributed.ErrClosed
	}
}

// all is the owner's part of an operation.
func (g *group) all(xs []*exchange) error {
	err := g.standing()
	var heard time.Time
	for i, x := range xs {
		if err != nil {
			break
		}
		err = g.run(x)
		if i == 0 {
			heard = g.op.heard
		}
	}
	g.op.heard = heard
	g.suspect(err)
	return err
}

// rest ends an operation that launch has begun.
func (g *group) rest(x *exchange) error {
	g.world.owner.calls.Lock()
	err := g.standing()
	if !g.bye { // else its memory is gone
		if err == nil {
			err = g.await(&g.sets[0], x)
		}
		if err == nil {
			g.op.heard = time.Now()
			g.consume(x, 0)
		}
	}
	g.world.owner.calls.Unlock()
	g.suspect(err)
	return err
}

// standing is the cause if the group has failed.
func (g *group) standing() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// suspect tells the owner of the link that a peer seems lost, once.
func (g *group) suspect(err error) {
	var op *distributed.OpError
	if err == nil || !errors.As(err, &op) || op.Peer < 0 {
		return
	}
	g.tell(op.Peer, op.Err)
}

// tell passes a suspicion of this group, or of a child, on to the owner of the
// link: once.
func (g *group) tell(peer int, err error) {
	g.mu.Lock()
	tell := g.cause == nil && !g.quiet && !g.suspected
	g.suspected = g.suspected || tell
	g.mu.Unlock()
	if tell && g.link.Suspect != nil {
		g.link.Suspect(peer, err)
	}
}

// settle makes a cause of an operation's error: the verdict of all, if it comes
// in time, else the suspicion itself.
func (g *group) settle(err error) {
	g.mu.Lock()
	quiet := g.quiet
	g.mu.Unlock()
	var op *distributed.OpError
	if !quiet && errors.As(err, &op) && op.Peer >= 0 && g.link.VerdictTimeout > 0 {
		limit := time.NewTimer(g.link.VerdictTimeout)
		defer limit.Stop()
		select {
		case <-g.failed:
		case <-limit.C:
		}
	}
	g.Fail(err)
}

// finish waits for the end of the operation under way.
func (g *group) finish() error {
	if !g.busy.Load() {
		return &distributed.OpError{Op: "wait", Rank: g.rank, Peer: -1, World: g.split.World, Err: fmt.Errorf("%w: Wait was called before", distributed.ErrArgument)}
	}
	entered := time.Now()
	var err error
	if x := g.small; x != nil {
		g.small = nil
		err = g.rest(x)
	} else {
		err = <-g.done // the owner's waits are bounded
	}
	if err != nil {
		g.settle(err)
		err = g.wrap(g.standing())
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
	g.release()
	return nil
}

// late is the error of an operation that has run out of time.
func (g *group) late(set *round) error {
	first := -1
	var silent, deaf []string
	for i := 1; i < g.size; i++ {
		p := (g.rank + i) % g.size
		in, out := set.waitsFor(p)
		if (in || out) && first < 0 {
			first = p
		}
		switch who := fmt.Sprintf("rank %d at %s", p, g.link.Addrs[p]); {
		case in:
			silent = append(silent, who)
		case out:
			deaf = append(deaf, who)
		}
	}
	var what []string
	if len(silent) > 0 {
		what = append(what, "nothing came from "+strings.Join(silent, ", "))
	}
	if len(deaf) > 0 {
		what = append(what, "not taken by "+strings.Join(deaf, ", "))
	}
	err := fmt.Errorf("%w: not done within %v: %s", distributed.ErrTimeout, g.link.OpTimeout, strings.Join(what, "; "))
	if first < 0 {
		return err
	}
	return g.blame(first, err)
}
