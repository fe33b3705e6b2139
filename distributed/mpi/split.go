package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"ringmaster/distributed"
)

// A child uses the communicator of its parent, with two tags of its own.
// MPI_Comm_split and MPI_Comm_create_group wait without a limit, MPI_Comm_idup
// needs all ranks of the communicator, also those outside of a child that is
// split again; and the memory of a communicator that has failed is lost.
//
// The members of a child take the greatest of the tags that are free on each of
// them, so no two ranks have the same tag twice in common.

// tags are those of a communicator on this rank.
type tags struct {
	mu   sync.Mutex
	next int32 // the first that no group of this rank uses
}

// mostTag is the greatest tag that every MPI has, less the one that idle asks
// for.
const mostTag = 32766

// everyRank are the ranks of a group that has a communicator for itself.
func everyRank(size int) []int32 {
	ranks := make([]int32, size)
	for r := range ranks {
		ranks[r] = int32(r)
	}
	return ranks
}

// Split is described at distributed.Group.
func (g *group) Split(ctx context.Context, color, key int) (distributed.Group, error) {
	if !g.busy.CompareAndSwap(false, true) {
		return nil, &distributed.OpError{Op: "split", Rank: g.rank, Peer: -1, World: g.split.World, Err: distributed.ErrBusy}
	}
	g.held = true
	g.split.Limit = g.link.OpTimeout / 2
	g.tags.mu.Lock()
	free := g.tags.next
	g.tags.mu.Unlock()
	ops, number := g.ops.Load(), g.number
	child, err := g.split.Split(ctx, exclusive{g}, color, key, binary.LittleEndian.AppendUint32(nil, uint32(free)), g.fork)
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

// fork makes a child.
func (g *group) fork(ctx context.Context, c *distributed.Child) (distributed.Group, error) {
	l := distributed.Link{
		Rank: c.Rank, Size: len(c.Members), GroupID: fmt.Sprintf("%016x", c.ID), Epoch: g.link.Epoch,
		Token: distributed.ChildToken(g.link.Token, c.ID), Addrs: make([]string, len(c.Members)),
		OpTimeout: g.link.OpTimeout, VerdictTimeout: g.link.VerdictTimeout,
		Suspect: func(peer int, cause error) { g.tell(c.Members[peer], cause) },
	}
	ranks := make([]int32, l.Size)
	tag := uint32(0)
	for i, r := range c.Members {
		l.Addrs[i], ranks[i] = g.link.Addrs[r], g.ranks[r]
		if len(c.Offers[i]) != 4 {
			return nil, fmt.Errorf("%w: rank %d offers no tag", distributed.ErrDesync, r)
		}
		tag = max(tag, binary.LittleEndian.Uint32(c.Offers[i]))
	}
	if tag+tagFarewell-tagData > mostTag {
		return nil, fmt.Errorf("%w: %d groups were split off in this epoch, MPI has tags for no more", distributed.ErrUnavailable, tag/2)
	}
	g.tags.mu.Lock()
	g.tags.next = max(g.tags.next, int32(tag)+2)
	g.tags.mu.Unlock()
	child := newGroup(g.world, l, g.opts, g.comm, ranks, int32(tag))
	child.split.ID, child.split.World, child.onClose, child.tags = c.ID, c.World, c.Closed, g.tags
	if err := g.world.do(ctx, child.greet); err != nil {
		var at *distributed.OpError
		if errors.As(err, &at) {
			at.World = c.World
		}
		child.Fail(err)
		return nil, err
	}
	return child, nil
}

// exclusive is the group as a split uses it, which has taken it for itself.
type exclusive struct{ *group }

// AllGather is that of the group, but that a rank which does something else is
// found out.
func (x exclusive) AllGather(ctx context.Context, dst, src []byte) error {
	g := x.group
	if err := g.enter(ctx, "split", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	return g.gather(opSplit, dst, src)
}
