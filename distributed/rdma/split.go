package rdma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
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
	if err := g.start(key{op: opSplit, dtype: noDType, to: -1, from: -1}, nil, nil, nil, false); err != nil {
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
		case !errors.Is(cause, distributed.ErrPeerGone): // of that the watch tells
			r.suspect(peer, cause)
		}
	}
	side, err := t.opts.Side.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	b := &bootstrap{t: t, ctx: ctx, link: l, side: side, child: c, given: members(g.known, c.Members), own: g.rule,
		patience: min(t.opts.TokenTimeout, l.OpTimeout/8)}
	b.own.Cap, b.own.Model = g.cfg.Cap, g.cfg.Model
	b.probed = proved(b.given)
	who := fmt.Sprintf("child %s of world ranks %v", l.GroupID, c.World)
	child, err := b.run()
	if err == nil {
		rails.Store(child)
		child.loud()
		b.report(who + ": ")
		return child, nil
	}
	b.abandon()
	var no *stageError
	if !errors.As(err, &no) && !errors.Is(err, distributed.ErrConfig) || ctx.Err() != nil {
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

// proved takes a paired matrix for the result of attempts.
func proved(m matrix.Matrix) map[matrix.Attempt]bool {
	known := map[matrix.Attempt]bool{}
	for _, r := range railsOf(m) {
		known[r.Attempt] = true
	}
	return known
}

// room tells whether the devices have what a child's rails need, by what they say
// of themselves and what this process has taken; whether other processes have
// left it, only trying shows.
func (b *bootstrap) room(rails []railPair) error {
	ends := map[string]int{}
	for _, p := range rails {
		if r, ok := p.of(b.link.Rank); ok {
			ends[r.device]++
		}
	}
	for _, name := range b.given.Devices(b.link.Rank) {
		d := b.t.open[name]
		qps, mrs, cqs := d.ctx.Used()
		bytes := ends[name] * b.endBytes(d, b.cap)
		var short []string
		lacks := func(what string, have, need, most int) {
			if need > 0 && most > 0 && have+need > most {
				short = append(short, fmt.Sprintf("%d of %d %s are in use, %d more are needed", have, most, what, need))
			}
		}
		lacks("queue pairs", qps, ends[name], d.attr.MaxQP)
		lacks("completion queues", cqs, ends[name], d.attr.MaxCQ)
		lacks("memory regions", mrs, min(1, ends[name]), d.attr.MaxMR)
		if d.attr.MaxMRSize > 0 && uint64(bytes) > d.attr.MaxMRSize {
			short = append(short, fmt.Sprintf("a memory region has %d bytes at most, %d are needed", d.attr.MaxMRSize, bytes))
		}
		if len(short) > 0 {
			return fmt.Errorf("%w: %s: %s", distributed.ErrUnavailable, name, strings.Join(short, "; "))
		}
	}
	return nil
}

// Noted is the face of groups that say what was put right or left out.
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
