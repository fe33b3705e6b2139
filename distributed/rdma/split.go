package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/bringup"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/matrix"
)

// A child is brought up as its parent was: over a group of the side transport
// that its members make for it, on the devices that are open, with queue pairs
// and memory of its own, every rail proved. What differs is where the facts come
// from: the parent knows the cables, has measured the wires and keeps to what
// its rank 0 has decided. Where the members' devices have no room, or their
// cables close neither a ring nor a mesh, that group of the side transport is the
// child, on all members.

// splitSlack is how much longer than the rails the side channel may take in a
// split: the rails name who has not come.
const splitSlack = 500 * time.Millisecond

// Split is described at distributed.Group.
func (g *group) Split(ctx context.Context, color, key int) (distributed.Group, error) {
	if !g.busy.CompareAndSwap(false, true) {
		return nil, &distributed.OpError{Op: "split", Rank: g.rank, Peer: -1, World: g.split.World, Err: distributed.ErrBusy}
	}
	g.held = true
	ops, number := g.ops.Load(), g.number
	child, err := g.split.Split(ctx, talk{g}, color, key, nil, g.fork)
	if err == nil {
		g.ops.Store(ops + 1)
	}
	if g.number > number {
		g.number = number + 1 // its exchanges are one operation
	}
	g.held = false
	g.busy.Store(false)
	return child, err
}

// talk is the group as a split uses it, which has taken it for itself.
type talk struct{ *group }

// AllGather goes over the side channel. Meanwhile the rails do a barrier of a kind
// of its own: a rank that does something else, on either channel, is found out at
// once.
func (x talk) AllGather(ctx context.Context, dst, src []byte) error {
	g := x.group
	if err := g.take(ctx, "split", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	g.overSide(splitSlack, -1, func(ctx context.Context) error { return g.side.AllGather(ctx, dst, src) })
	if err := g.start(engine.Operation{Op: engine.Split, DType: engine.NoDType, To: -1, From: -1}, nil, nil, nil, false); err != nil {
		return err
	}
	return g.finish()
}

// fork makes a child.
func (g *group) fork(ctx context.Context, c *distributed.Child) (distributed.Group, error) {
	t := g.t
	if err := t.turn(ctx); err != nil {
		return nil, err
	}
	defer t.done()
	l := c.Link(g.link, g.tell)
	over := l
	var rails atomic.Pointer[group]
	over.Suspect = func(peer int, cause error) {
		r := rails.Load()
		switch {
		case r == nil:
			l.Suspect(peer, cause)
		case !errors.Is(cause, distributed.ErrPeerGone): // a death is reported by the liveness connection
			r.suspect(peer, cause)
		}
	}
	side, err := t.opts.Side.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	rules := g.rails.Rules
	rules.Cap, rules.Model = g.eng.Plan().Cap, g.eng.Plan().Model
	who := fmt.Sprintf("child %s of world ranks %v", l.GroupID, c.World)
	child, err := t.form(ctx, bringup.Config{Link: l, Side: side, Matrix: members(g.rails.Known, c.Members), Rules: rules,
		Patience: min(t.opts.Tuning.TokenTimeout, l.OpTimeout/8), Child: true}, c)
	if err == nil {
		rails.Store(child)
		child.enableSuspicions()
		t.report(who+": ", child)
		return child, nil
	}
	if !bringup.IsVote(err) || ctx.Err() != nil {
		_ = side.Close()
		return nil, err // not of all members alike
	}
	why := fmt.Sprintf("%s: no rails, all its members use %s: %v", who, t.opts.Side.Name(), err)
	t.opts.Report(why)
	return &railless{side, c.Closed, []string{why}}, nil
}

// members is the part of a matrix that is about some ranks, in their order.
func members(m matrix.Matrix, ranks []int) matrix.Matrix {
	part := make(matrix.Matrix, len(ranks))
	for i, a := range ranks {
		part[i] = make([][]string, len(ranks))
		for j, b := range ranks {
			part[i][j] = append([]string(nil), m[a][b]...)
		}
	}
	return part
}

// Noted is the interface of groups that say what was put right or left out.
type Noted interface{ Notes() []string }

// railless is a child without rails: a group of the side transport.
type railless struct {
	distributed.Group
	parted func()
	notes  []string
}

var (
	_ Noted = (*railless)(nil)
	_ Noted = (*group)(nil)
)

// Close is described at distributed.Group.
func (r *railless) Close() error {
	err := r.Group.Close()
	r.parted()
	return err
}

// Notes say why it has no rails.
func (r *railless) Notes() []string { return append([]string(nil), r.notes...) }
