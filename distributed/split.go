package distributed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Splitting a group. Every rank takes part in every exchange of a split,
// whichever child it joins and whatever fails on it, because otherwise the
// others would wait. Ranks differ only in what they do between exchanges.

// Split makes groups of the ranks that pass the same color, 0 to 2^31-1,
// ordered by key, ties by rank; a key below 0 stands for the rank (see
// Members). A rank that passes Undefined gets nil. Split is collective over all
// ranks of this group, and an error on one rank is an error on all: ErrArgument
// for an invalid color, ErrBootstrap for a child that could not be formed.
// After either of these the group remains usable. The end of ctx fails the
// group, as in any operation. A child of one rank is a Local group.
func (g *Group) Split(ctx context.Context, color, key int) (*Group, error) {
	if !g.busy.CompareAndSwap(false, true) {
		return nil, &OpError{Op: Agree.String(), Rank: g.link.Rank, Peer: -1, World: g.link.World, Hosts: g.link.Hosts, Err: ErrBusy}
	}
	g.held = true
	ops, number := g.ops.Load(), g.number
	child, err := g.split(ctx, color, key)
	if err == nil {
		g.ops.Store(ops + 1)
	}
	if g.number > number {
		g.number = number + 1 // all exchanges of a split count as one operation
	}
	g.held = false
	g.busy.Store(false)
	return child, err
}

// agree is an all-gather with a kind of its own, so that a rank in any other
// operation fails as out of step.
func (g *Group) agree(ctx context.Context, dst, src []byte) error {
	if err := g.enter(ctx, &Op{Kind: Agree, DType: NoDType, Dst: dst, Src: src}, nil); err != nil {
		return err
	}
	return g.finish()
}

func (g *Group) split(ctx context.Context, color, key int) (*Group, error) {
	number, rank := g.splits+1, g.link.Rank
	begun := time.Now()
	fault := func(peer int, err error) error {
		return &OpError{Op: Agree.String(), Seq: number, Rank: rank, Peer: peer, World: g.link.World, Hosts: g.link.Hosts, Elapsed: time.Since(begun), Err: err}
	}
	var offer []byte
	if o, ok := g.driver.(Offerer); ok {
		offer = o.Offer()
	}
	id := groupID(&g.link)
	own := proposal{id, number, color, key, len(offer)}
	records := make([]byte, g.link.Size*proposalSize)
	if err := g.agree(ctx, records, own.bytes()); err != nil {
		return nil, err // the group has failed, or the operation has not begun
	}
	g.splits = number
	proposals, wrong, err := readProposals(records, id, number)
	if err != nil {
		err = fault(-1, err)
		g.Fail(err)
		return nil, err
	}
	offers, err := g.offers(ctx, proposals, offer)
	if err != nil {
		g.Fail(err) // even if the exchange has not begun here, because the other ranks are in it
		return nil, err
	}
	if wrong >= 0 {
		return nil, fault(wrong, fmt.Errorf("%w: rank %[3]d has color %[2]d; expected 0 to %[4]d, or %[5]d for none", ErrArgument,
			proposals[wrong].color, wrong, math.MaxInt32, Undefined))
	}
	child, problem := g.formChild(ctx, id, number, proposals, offers)
	peer, text, err := g.vote(ctx, problem)
	switch {
	case err != nil:
	case peer == rank && errors.Is(problem, ErrBootstrap):
		err = fault(-1, problem)
	case peer == rank:
		err = fault(-1, fmt.Errorf("%w: %w", ErrBootstrap, problem))
	case peer >= 0:
		err = fault(peer, fmt.Errorf("%w: %s has not formed its child: %s", ErrBootstrap, g.link.Name(peer), text))
	}
	if err != nil {
		if child != nil {
			_ = child.Close()
		}
		return nil, err
	}
	g.adopt(child)
	return child, nil
}

// offers exchanges the ranks' offers, padded to the longest. If no rank has
// one, it skips the exchange.
func (g *Group) offers(ctx context.Context, proposals []proposal, own []byte) ([][]byte, error) {
	longest := 0
	for _, p := range proposals {
		longest = max(longest, p.offer)
	}
	offers := make([][]byte, len(proposals))
	if longest == 0 {
		return offers, nil
	}
	src, dst := make([]byte, longest), make([]byte, longest*len(proposals))
	copy(src, own)
	if err := g.agree(ctx, dst, src); err != nil {
		return nil, err
	}
	for r, p := range proposals {
		offers[r] = dst[r*longest:][:p.offer:p.offer]
	}
	return offers, nil
}

// formChild forms the child that this rank joins, nil for none. It ends when
// the parent fails, and takes less time than an operation may, because the
// other ranks are waiting in the vote.
func (g *Group) formChild(ctx context.Context, id, number uint64, proposals []proposal, offers [][]byte) (*Group, error) {
	rank := g.link.Rank
	if proposals[rank].color == Undefined {
		return nil, nil
	}
	colors, keys := make([]int, len(proposals)), make([]int, len(proposals))
	for r, p := range proposals {
		colors[r], keys[r] = p.color, p.key
	}
	var spec ChildSpec
	for _, part := range Members(colors, keys) {
		if part.Color != proposals[rank].color {
			continue
		}
		at := 0
		for i, r := range part.Members {
			if r == rank {
				at = i
			}
			spec.Offers = append(spec.Offers, offers[r])
		}
		spec.Members = part.Members
		spec.Link = g.link.child(childID(id, number, part.Color), at, part.Members, g.report)
	}
	if spec.Link.Size == 1 {
		return newLocal(spec.Link), nil
	}
	limit := g.link.OpTimeout / 2
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the child was not formed within %v", ErrTimeout, limit))
	defer stop()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	g.mu.Lock()
	cause := g.cause
	g.abort = abort
	g.mu.Unlock()
	if cause != nil {
		return nil, cause
	}
	child, err := g.driver.Child(ctx, spec)
	g.mu.Lock()
	g.abort = nil
	g.mu.Unlock()
	return child, err
}

// vote tells all ranks whether every rank has formed its child. peer is the
// first rank that has not, or -1, and text is its reason.
func (g *Group) vote(ctx context.Context, problem error) (peer int, text string, err error) {
	own, all := make([]byte, voteSize), make([]byte, voteSize*g.link.Size)
	if problem != nil {
		own[0] = 1
		binary.LittleEndian.PutUint16(own[2:], uint16(copy(own[4:], problem.Error())))
	}
	if err := g.agree(ctx, all, own); err != nil {
		g.Fail(err) // even if the vote has not begun here, because the other ranks are in it
		return -1, "", err
	}
	for r := range g.link.Size {
		b := all[r*voteSize : (r+1)*voteSize]
		if b[0] != 0 {
			n := min(int(binary.LittleEndian.Uint16(b[2:])), voteSize-4)
			return r, string(b[4 : 4+n]), nil
		}
	}
	return -1, "", nil
}

// adopt ties the life of a child to that of the parent.
func (g *Group) adopt(child *Group) {
	if child == nil {
		return
	}
	child.parent = g
	g.mu.Lock()
	cause, closed := g.cause, g.closed
	if !closed {
		if g.children == nil {
			g.children = map[*Group]struct{}{}
		}
		g.children[child] = struct{}{}
	}
	g.mu.Unlock()
	if cause != nil {
		child.Fail(inherited(cause))
	}
	if closed {
		_ = child.Close()
	}
}

// forget removes a closed child.
func (g *Group) forget(child *Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.children, child)
}

// inherited wraps the cause of a parent's failure as the cause of its
// children's failure.
func inherited(cause error) error {
	return fmt.Errorf("the parent of this group has failed: %w", cause)
}

// failChildren fails the children of a group that has failed and cancels the
// child being formed. It does not wait.
func (g *Group) failChildren(cause error) {
	children, abort := g.family()
	if abort != nil {
		abort(cause)
	}
	for _, c := range children {
		c.Fail(inherited(cause))
	}
}

// closeChildren closes the children of a group that is being closed.
func (g *Group) closeChildren() error {
	children, _ := g.family()
	var all error
	for _, c := range children {
		all = errors.Join(all, c.Close())
	}
	return all
}

func (g *Group) family() ([]*Group, context.CancelCauseFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.children)), g.abort
}
