package distributed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How an operation begins and ends, for every driver.

// run does an operation.
func (g *Group) run(ctx context.Context, op *Op, args error) error {
	if err := g.begin(ctx, op, args); err != nil {
		return err
	}
	return g.finish()
}

// start begins an operation that Wait ends.
func (g *Group) start(ctx context.Context, op *Op, args error) Pending {
	op.Async = true
	if err := g.begin(ctx, op, args); err != nil {
		return Pending{err: err}
	}
	return Pending{g: g, number: g.op.Number}
}

// await ends the operation of a number.
func (g *Group) await(number uint64) error {
	if !g.busy.Load() || number != g.op.Number {
		return &OpError{Op: "wait", Rank: g.link.Rank, Peer: -1, World: g.link.World, Err: fmt.Errorf("%w: Wait was called before", ErrArgument)}
	}
	return g.finish()
}

// begin takes the group for an operation, once its arguments are good.
func (g *Group) begin(ctx context.Context, op *Op, args error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return &OpError{Op: op.Kind.String(), Rank: g.link.Rank, Peer: -1, World: g.link.World, Err: ErrBusy}
	}
	return g.enter(ctx, op, args)
}

// enter is begin for who has the group: it gives the operation its numbers and
// its deadline and hands it to the driver. The driver is left only by release,
// or at once by an asynchronous operation.
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
		err = context.Cause(ctx) // it ended before the watch could see the operation
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

// leave lets Close free the driver.
func (g *Group) leave() {
	g.mu.Lock()
	g.inside = false
	g.idle.Broadcast()
	g.mu.Unlock()
}

// back enters the driver again, unless the group is closed.
func (g *Group) back() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed {
		return false
	}
	g.inside = true
	return true
}

// release ends the operation.
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

// finish waits for the end of the operation under way.
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

// broken ends the operation under way with the cause of the group's failure, and
// when the driver has let go of its memory.
func (g *Group) broken(err error) error {
	var s *Suspicion
	if errors.As(err, &s) {
		g.suspect(s.Peer, s.Err)
	}
	g.verdict(err)
	_, _ = g.driver.Wait(&g.op)
	err = g.wrap(g.standing())
	g.release()
	return err
}

// verdict waits for the cause of the failure after a suspicion: Fail with the
// verdict of all, or the suspicion itself when that does not come in time. An
// error that nobody is suspected of is the cause at once.
func (g *Group) verdict(err error) {
	g.mu.Lock()
	s, quiet := g.suspicion, g.quiet
	if !g.told {
		g.suspectAt = time.Now() // nobody could think about it before
	}
	at := g.suspectAt
	g.mu.Unlock()
	if s == nil {
		g.Fail(g.wrap(err))
		return
	}
	g.tell(s.Peer, s.Err)
	if !quiet && g.link.VerdictTimeout > 0 {
		timer := time.NewTimer(time.Until(at.Add(g.link.VerdictTimeout)))
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	if s.Op == idleOp { // it is the operation under way that fails
		x := *s
		x.Op, x.Seq, x.Elapsed = g.op.Kind.String(), g.op.Number, time.Since(g.op.Begun)
		s = &x
	}
	g.Fail(s)
}

// wrap makes the error of the operation around a cause.
func (g *Group) wrap(cause error) error {
	if e, ok := cause.(*OpError); ok {
		return e // the operation that failed; later ones return the same
	}
	return &OpError{Op: g.op.Kind.String(), Seq: g.op.Number, Rank: g.link.Rank, Peer: g.link.Culprit(cause), World: g.link.World,
		Elapsed: time.Since(g.op.Begun), Err: cause}
}

// standing is the cause of the failure, nil before.
func (g *Group) standing() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}
