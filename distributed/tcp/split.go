package tcp

import (
	"context"

	"ringmaster/distributed"
)

// A child has connections of its own, to the listeners that its members have
// anyway: it differs from the parent by its id and by its token. So a transport
// carries any number of groups at once, and no port is made up.

// origin is where a child comes from.
type origin struct {
	child    *distributed.Child
	measured Calibration // of the parent
}

// Split is described at distributed.Group.
func (g *group) Split(ctx context.Context, color, key int) (distributed.Group, error) {
	if !g.busy.CompareAndSwap(false, true) {
		return nil, &distributed.OpError{Op: "split", Rank: g.rank, Peer: -1, World: g.split.World, Err: distributed.ErrBusy}
	}
	g.held = true
	ops, number := g.ops.Load(), g.number
	child, err := g.split.Split(ctx, exchange{g}, color, key, nil, g.fork)
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

// fork connects a child.
func (g *group) fork(ctx context.Context, c *distributed.Child) (distributed.Group, error) {
	child, err := g.transport.connect(ctx, c.Link(g.link, g.tell), &origin{c, g.measured})
	if err != nil {
		return nil, err
	}
	return child, nil
}

// exchange is the group as a split uses it, which has taken it for itself.
type exchange struct{ *group }

// AllGather is that of the group, but that a rank which does something else is
// found out.
func (x exchange) AllGather(ctx context.Context, dst, src []byte) error {
	g := x.group
	if err := g.enter(ctx, "split", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	return g.gather(opSplit, dst, src)
}
