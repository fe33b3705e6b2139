package distributed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The life cycle of a group: forming, suspicions, failure, closing.

// Form makes the group of a link; a transport's Connect and a driver's Child
// use it. bringUp returns the driver of this rank when it is connected to all
// others. It receives l with a Suspect function that the driver may call at any
// time, from any goroutine, with any error of a peer; the group handles the
// consequences. A group of one rank is a Local group.
func Form(ctx context.Context, l Link, bringUp func(ctx context.Context, l Link) (Driver, error)) (*Group, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Size == 1 {
		return newLocal(l), nil
	}
	g := newGroup(l)
	l.Suspect = g.suspect
	d, err := bringUp(ctx, l)
	if err != nil {
		return nil, err
	}
	g.driver = d
	if c, ok := d.(Calibrator); ok {
		err = c.Calibrate(ctx, g)
	}
	if err == nil {
		err = g.open()
	}
	if err != nil {
		_ = g.Close()
		return nil, fmt.Errorf("%w: %w", ErrBootstrap, err)
	}
	return g, nil
}

// open ends the forming phase: operation numbers and statistics restart at
// zero, and suspicions are now reported to the link's owner.
func (g *Group) open() error {
	g.seq, g.number = 0, 0
	g.ops.Store(0)
	g.waiting.Store(0)
	g.wire.Store(0)
	g.traffic.sent.Store(0)
	g.traffic.received.Store(0)
	g.mu.Lock()
	g.quiet = false
	s, cause := g.suspicion, g.cause
	g.mu.Unlock()
	if s != nil && !g.link.Child {
		g.report(s.Peer, s.Err)
	}
	return cause
}

// idleOp is the operation named in the error of a suspicion raised between
// operations.
const idleOp = "idle"

// suspect records that something is wrong with a peer, -1 for no particular
// one. Only the first suspicion counts, and none after a failure. A suspicion
// raised while a child is idle is reported only when an operation runs into it,
// because the members close a child one after the other, so a closed connection
// is normal then, and the parent notices the death of a rank by itself.
func (g *Group) suspect(peer int, err error) {
	g.mu.Lock()
	if g.cause != nil || g.suspicion != nil {
		g.mu.Unlock()
		return
	}
	s := &OpError{Op: idleOp, Rank: g.link.Rank, Peer: peer, World: g.link.World, Hosts: g.link.Hosts, Err: err}
	if g.active {
		s.Op, s.Seq, s.Elapsed = g.op.Kind.String(), g.op.Number, time.Since(g.op.Begun)
	}
	if peer >= 0 && peer < len(g.link.Addrs) {
		s.Addr = g.link.Addrs[peer]
	}
	g.suspicion, g.suspectAt = s, time.Now()
	first := g.active || !g.link.Child
	g.mu.Unlock()
	if first {
		g.report(peer, err)
	}
}

// report forwards a suspicion of this group or of a child to the owner of the
// link, at most once.
func (g *Group) report(peer int, err error) {
	g.mu.Lock()
	first := !g.quiet && !g.reported && g.cause == nil
	g.reported = g.reported || first
	g.mu.Unlock()
	if first && g.link.Suspect != nil {
		g.link.Suspect(peer, err)
	}
}

// contextEnded fails the group if the current operation has the context.
func (g *Group) contextEnded(done <-chan struct{}, cause error) {
	g.mu.Lock()
	hit := g.active && g.doing == done
	g.mu.Unlock()
	if hit {
		g.Fail(cause)
	}
}

// Fail ends the group with a cause, which the current operation and all later
// ones return. Only the first cause counts. Any goroutine may call it.
func (g *Group) Fail(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	close(g.failed)
	g.mu.Unlock()
	g.driver.Abort(cause)
	g.failChildren(cause)
}

// Close frees the group, in bounded time. The current operation and later ones
// return ErrClosed unless the group has failed before. It may be called more
// than once.
func (g *Group) Close() error {
	g.closing.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

// close closes the children first. If no operation is in progress and nothing
// is wrong, it closes the driver without an Abort, so that data already sent
// arrives.
func (g *Group) close() error {
	g.mu.Lock()
	g.closed = true
	orderly := g.cause == nil && g.suspicion == nil && !g.busy.Load()
	if orderly {
		g.cause = ErrClosed
		close(g.failed)
	}
	g.mu.Unlock()
	if !orderly {
		g.Fail(ErrClosed)
	}
	err := g.closeChildren()
	g.mu.Lock()
	for g.inside {
		g.idle.Wait()
	}
	g.freed = true
	g.mu.Unlock()
	g.contexts.stop()
	err = errors.Join(err, g.driver.Close())
	if g.parent != nil {
		g.parent.forget(g)
	}
	return err
}
