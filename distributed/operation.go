package distributed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How an operation begins and ends with any driver.

// run performs a blocking operation.
func (g *Group) run(ctx context.Context, op *Op, args error) error {
	if err := g.begin(ctx, op, args); err != nil {
		return err
	}
	return g.finish()
}

// start begins an operation that Pending.Wait ends.
func (g *Group) start(ctx context.Context, op *Op, args error) Pending {
	op.Async = true
	if err := g.begin(ctx, op, args); err != nil {
		return Pending{err: err}
	}
	return Pending{g: g, number: g.op.Number}
}

// await ends the operation with the given number.
func (g *Group) await(number uint64) error {
	if !g.busy.Load() || number != g.op.Number {
		return &OpError{Op: "wait", Rank: g.link.Rank, Peer: -1, World: g.link.World, Hosts: g.link.Hosts, Err: fmt.Errorf("%w: Wait was called before", ErrArgument)}
	}
	return g.finish()
}

// begin acquires the group for an operation; args is the error of the argument
// check.
func (g *Group) begin(ctx context.Context, op *Op, args error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return &OpError{Op: op.Kind.String(), Rank: g.link.Rank, Peer: -1, World: g.link.World, Hosts: g.link.Hosts, Err: ErrBusy}
	}
	return g.enter(ctx, op, args)
}

// enter is begin for a goroutine that already holds the group: it gives the
// operation its numbers and its deadline and passes it to the driver. The
// goroutine stays inside the driver until release; an asynchronous operation
// leaves it at once.
func (g *Group) enter(ctx context.Context, op *Op, args error) error {
	op.Number, op.Begun, op.traffic = g.number+1, time.Now(), &g.traffic
	op.Deadline = op.Begun.Add(g.link.OpTimeout)
	if !op.Kind.Message() {
		op.Seq = g.seq + 1
	}
	err := args
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		g.contexts.begin(ctx)
	}
	g.mu.Lock()
	g.op = *op
	if g.cause != nil {
		err = g.cause
	}
	if err == nil {
		g.active, g.inside, g.doing = true, true, ctx.Done()
	}
	g.mu.Unlock()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it ended before contextWatch knew the operation
	}
	if err != nil {
		err = g.wrap(err)
		g.release()
		return err
	}
	g.number++
	if op.Seq > 0 {
		g.seq++
	}
	g.startErr = g.driver.Start(&g.op)
	if op.Async {
		g.leave()
	}
	return nil
}

// leave marks that no goroutine is inside the driver, so that Close may free
// it.
func (g *Group) leave() {
	g.mu.Lock()
	g.inside = false
	g.idle.Broadcast()
	g.mu.Unlock()
}

// back enters the driver again; false if the group is closed.
func (g *Group) back() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed {
		return false
	}
	g.inside = true
	return true
}

// release ends the operation and releases the group.
func (g *Group) release() {
	g.mu.Lock()
	g.active, g.inside, g.doing = false, false, nil
	g.op.Dst, g.op.Src, g.op.Sizes = nil, nil, nil
	g.idle.Broadcast()
	g.mu.Unlock()
	if !g.held {
		g.busy.Store(false)
	}
}

// finish waits for the end of the current operation.
func (g *Group) finish() error {
	if g.op.Async && !g.back() {
		err := g.wrap(g.standing())
		g.release()
		return err
	}
	entered := time.Now()
	err := g.startErr
	var t Timing
	if err == nil {
		t, err = g.driver.Wait(&g.op)
	}
	if err != nil {
		return g.broken(err)
	}
	end := time.Now()
	heard := t.Heard
	if heard.Before(entered) {
		heard = entered
	}
	g.waiting.Add(int64(heard.Sub(entered)))
	g.wire.Add(int64(end.Sub(heard)))
	g.ops.Add(1)
	g.release()
	return nil
}

// broken ends the current operation with the cause of the group's failure,
// after the driver has released the operation's memory.
func (g *Group) broken(err error) error {
	if s, ok := errors.AsType[*Suspicion](err); ok {
		g.suspect(s.Peer, s.Err)
	}
	g.verdict(err)
	_, _ = g.driver.Wait(&g.op)
	err = g.wrap(g.standing())
	g.release()
	return err
}

// verdict waits for the cause of the failure after a suspicion. The cause is
// the verdict of the whole group, which arrives by Fail, or the suspicion
// itself if no verdict arrives in time. An error that blames no peer becomes
// the cause at once.
func (g *Group) verdict(err error) {
	g.mu.Lock()
	s, quiet := g.suspicion, g.quiet
	if !g.reported {
		g.suspectAt = time.Now() // the owner does not know the suspicion yet, so the wait starts now
	}
	at := g.suspectAt
	g.mu.Unlock()
	if s == nil {
		g.Fail(g.wrap(err))
		return
	}
	g.report(s.Peer, s.Err)
	if !quiet && g.link.VerdictTimeout > 0 {
		timer := time.NewTimer(time.Until(at.Add(g.link.VerdictTimeout)))
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	if s.Op == idleOp { // name the current operation, because that is what fails
		x := *s
		x.Op, x.Seq, x.Elapsed = g.op.Kind.String(), g.op.Number, time.Since(g.op.Begun)
		s = &x
	}
	g.Fail(s)
}

// wrap returns an OpError of the current operation around a cause.
func (g *Group) wrap(cause error) error {
	if e, ok := cause.(*OpError); ok {
		return e // names the operation that failed; later ones return the same
	}
	return &OpError{Op: g.op.Kind.String(), Seq: g.op.Number, Rank: g.link.Rank, Peer: g.link.Culprit(cause), World: g.link.World, Hosts: g.link.Hosts,
		Elapsed: time.Since(g.op.Begun), Err: cause}
}

// standing returns the cause of the failure, nil if there is none.
func (g *Group) standing() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}
