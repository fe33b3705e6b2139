package rdma

import (
	"context"
	"errors"

	"ringmaster/distributed"
)

// Split is described at distributed.Group. Children are groups of the side
// transport: they take no queue pairs and no memory from the devices. Their
// suspicions are not passed on, for the watch of this group sees the same.
func (g *group) Split(ctx context.Context, color, key int) (distributed.Group, error) {
	if err := g.begin(ctx, "split", nil); err != nil {
		return nil, err
	}
	defer g.release()
	child, err := g.side.Split(ctx, color, key)
	if err == nil {
		g.ops.Add(1)
		return child, nil
	}
	if errors.Is(err, distributed.ErrArgument) || errors.Is(err, distributed.ErrBootstrap) {
		return nil, err // of all ranks, and the group is as good as before
	}
	var op *distributed.OpError
	if errors.As(err, &op) && op.Peer >= 0 {
		g.suspect(op.Peer, op.Err)
		g.verdict()
	} else {
		g.Fail(err)
	}
	g.mu.Lock()
	cause := g.cause
	g.mu.Unlock()
	return nil, g.wrap(cause)
}
