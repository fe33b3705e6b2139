package distributed

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Undefined is the color of a rank that joins no child in a split.
const Undefined = -1

// Part is one child of a split.
type Part struct {
	Color   int
	Members []int // ranks of the parent, in the order of the child
}

// Members computes the children of a split from what the ranks of the parent
// gave, colors [Size] and keys [Size]: MPI_Comm_split, but that a key below 0
// stands for the rank itself, as in MLX (collectives specification, 7.1). Ranks
// of one color are ordered by key, ties by rank; ranks of a color below 0 are
// in no part. The parts are ordered by color.
func Members(colors, keys []int) []Part {
	key := func(r int) int {
		if keys[r] < 0 {
			return r
		}
		return keys[r]
	}
	of := map[int][]int{}
	for r, c := range colors {
		if c >= 0 {
			of[c] = append(of[c], r)
		}
	}
	parts := make([]Part, 0, len(of))
	for c, members := range of {
		slices.SortStableFunc(members, func(a, b int) int {
			switch ka, kb := key(a), key(b); {
			case ka < kb:
				return -1
			case ka > kb:
				return 1
			}
			return 0
		})
		parts = append(parts, Part{c, members})
	}
	slices.SortFunc(parts, func(a, b Part) int { return a.Color - b.Color })
	return parts
}

// RootID is the id of a group that was not split off: SHA-256 of the group's
// name and the epoch, cut to 64 bits.
func RootID(group string, epoch uint32) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "group\n%d\n%s", epoch, group)
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// ChildID is the id of the child of a color in a group's split number n,
// counted from 1: SHA-256 of the three, cut to 64 bits.
func ChildID(parent, n uint64, color int) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "child\n%d\n%d\n%d", parent, n, color)
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// ChildToken is the secret [32] of a child: HMAC-SHA256 of its id with the
// token of the parent.
func ChildToken(parent []byte, id uint64) []byte {
	m := hmac.New(sha256.New, parent)
	m.Write(binary.LittleEndian.AppendUint64([]byte("child"), id))
	return m.Sum(nil)
}

// Exchange is what a Splitter needs of the group that is split. Between the
// calls of one split no other operation gets in between.
type Exchange interface {
	Rank() int
	Size() int
	AllGather(ctx context.Context, dst, src []byte) error
	Fail(cause error)
}

// Child says which group a rank is to form in a split.
type Child struct {
	ID      uint64
	Color   int
	Rank    int      // of this rank in the child
	Members []int    // [size of the child] ranks of the parent
	World   []int    // [size of the child] ranks of the outermost group
	Offers  [][]byte // [size of the child] what the members have offered
	// Closed is to be called when the group is closed.
	Closed func()
}

// Link is how the members of the child connect, made from the link of the
// parent: its own id and token, the members' addresses. tell gets what the child
// suspects, by the parent's ranks, -1 for nobody in particular.
func (c *Child) Link(parent Link, tell func(peer int, cause error)) Link {
	l := Link{
		Rank: c.Rank, Size: len(c.Members), GroupID: fmt.Sprintf("%016x", c.ID), Epoch: parent.Epoch,
		Token: ChildToken(parent.Token, c.ID), Addrs: make([]string, len(c.Members)), World: c.World,
		OpTimeout: parent.OpTimeout, VerdictTimeout: parent.VerdictTimeout,
		Suspect: func(peer int, cause error) {
			if peer >= 0 {
				peer = c.Members[peer]
			}
			tell(peer, cause)
		},
	}
	for i, r := range c.Members {
		l.Addrs[i] = parent.Addrs[r]
	}
	return l
}

// Splitter is the part of Split that transports share: it exchanges colors and
// keys, forms the child by a function of the transport, has all ranks vote on
// the result, and holds the children to the life of their parent. A transport
// has one for each group, and passes the group's Fail and Close on to it.
//
// Every rank takes part in every exchange of a split, whatever it joins and
// whatever goes wrong on it; what ranks do differently lies between exchanges.
type Splitter struct {
	ID    uint64 // RootID, or Child.ID of a child
	World []int  // [Size] of a child, else nil
	// Limit bounds the forming of a child. It is less than an operation may
	// take, for the others wait in the vote meanwhile.
	Limit time.Duration

	mu       sync.Mutex
	splits   uint64
	children map[Group]struct{}
	cause    error // of the failure of the parent
	closed   bool
	abort    context.CancelCauseFunc // ends the forming under way
}

// The lengths of the records of the two exchanges that have one.
const (
	proposalSize = 48
	voteSize     = 512
	proposalMark = 0x31734d52 // "RMs1"
	mostOffer    = 1 << 20
)

// proposal is what a rank says first, little-endian: mark u32, 0 u32, id of the
// group u64, number of the split u64, color i64, key i64, length of its offer
// u64.
type proposal struct {
	id, number uint64
	color, key int
	offer      int
}

func (p *proposal) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 0, proposalSize), proposalMark)
	b = le.AppendUint64(b, p.id)
	b = le.AppendUint64(b, p.number)
	b = le.AppendUint64(b, uint64(p.color))
	b = le.AppendUint64(b, uint64(p.key))
	return le.AppendUint64(b, uint64(p.offer))
}

// parse reads a record of rank r; the error is the same on every rank that
// reads it in the same split.
func (p *proposal) parse(b []byte, r int, id, number uint64) error {
	le := binary.LittleEndian
	mark, length := le.Uint64(b), le.Uint64(b[40:])
	*p = proposal{le.Uint64(b[8:]), le.Uint64(b[16:]), int(le.Uint64(b[24:])), int(le.Uint64(b[32:])), int(length)}
	if mark != proposalMark || p.id != id || p.number != number || length > mostOffer {
		return fmt.Errorf("%w: rank %d is not in split %d of this group", ErrDesync, r, number)
	}
	return nil
}

// Split does a split of the group x. offer is what the members of the child
// get to know of this rank, nil for nothing. form makes the group of a child
// of two ranks or more; an error of any rank is told to all, and what the others
// have formed is closed again. The end of ctx fails x, as in any operation under
// way.
func (s *Splitter) Split(ctx context.Context, x Exchange, color, key int, offer []byte,
	form func(ctx context.Context, c *Child) (Group, error)) (Group, error) {
	s.mu.Lock()
	number := s.splits + 1
	s.mu.Unlock()
	begun := time.Now()
	fault := func(peer int, err error) error {
		return &OpError{Op: "split", Seq: number, Rank: x.Rank(), Peer: peer, World: s.World, Elapsed: time.Since(begun), Err: err}
	}
	own := proposal{s.ID, number, color, key, len(offer)}
	records := make([]byte, x.Size()*proposalSize)
	if err := x.AllGather(ctx, records, own.bytes()); err != nil {
		return nil, err // failed, or has not begun
	}
	s.mu.Lock()
	s.splits = number
	s.mu.Unlock()
	said, wrong, err := s.read(records, number)
	if err != nil {
		err = fault(-1, err)
		x.Fail(err)
		return nil, err
	}
	offers, err := s.offers(ctx, x, said, offer)
	if err != nil {
		x.Fail(err)
		return nil, err
	}
	if wrong >= 0 {
		return nil, fault(wrong, fmt.Errorf("%w: color %d of rank %d; 0 to %d, or %d for none", ErrArgument,
			said[wrong].color, wrong, math.MaxInt32, Undefined))
	}
	g, problem := s.form(ctx, s.child(x.Rank(), number, said, offers), form)
	peer, text, err := vote(ctx, x, problem)
	switch {
	case err != nil:
		x.Fail(err)
	case peer == x.Rank() && errors.Is(problem, ErrBootstrap):
		err = fault(-1, problem)
	case peer == x.Rank():
		err = fault(-1, fmt.Errorf("%w: %w", ErrBootstrap, problem))
	case peer >= 0:
		err = fault(peer, fmt.Errorf("%w: rank %d has not formed its child: %s", ErrBootstrap, peer, text))
	}
	if err != nil {
		if g != nil {
			_ = g.Close()
		}
		return nil, err
	}
	s.adopt(g)
	return g, nil
}

// read takes the records of all ranks apart; wrong is the first rank whose
// color is none, or -1.
func (s *Splitter) read(records []byte, number uint64) (said []proposal, wrong int, err error) {
	said, wrong = make([]proposal, len(records)/proposalSize), -1
	for r := range said {
		if err := said[r].parse(records[r*proposalSize:], r, s.ID, number); err != nil {
			return nil, -1, err
		}
		if c := said[r].color; wrong < 0 && (c < Undefined || c > math.MaxInt32) {
			wrong = r
		}
	}
	return said, wrong, nil
}

// offers exchanges what the ranks have offered, padded to the longest; nothing
// if nobody has.
func (s *Splitter) offers(ctx context.Context, x Exchange, said []proposal, own []byte) ([][]byte, error) {
	longest := 0
	for _, p := range said {
		longest = max(longest, p.offer)
	}
	offers := make([][]byte, len(said))
	if longest == 0 {
		return offers, nil
	}
	src, dst := make([]byte, longest), make([]byte, longest*len(said))
	copy(src, own)
	if err := x.AllGather(ctx, dst, src); err != nil {
		return nil, err
	}
	for r, p := range said {
		offers[r] = dst[r*longest:][:p.offer:p.offer]
	}
	return offers, nil
}

// child is what this rank is to form, nil for nothing.
func (s *Splitter) child(rank int, number uint64, said []proposal, offers [][]byte) *Child {
	if said[rank].color == Undefined {
		return nil
	}
	colors, keys := make([]int, len(said)), make([]int, len(said))
	for r, p := range said {
		colors[r], keys[r] = p.color, p.key
	}
	for _, part := range Members(colors, keys) {
		if part.Color != said[rank].color {
			continue
		}
		c := &Child{ID: ChildID(s.ID, number, part.Color), Color: part.Color, Members: part.Members}
		for i, r := range part.Members {
			if r == rank {
				c.Rank = i
			}
			c.World = append(c.World, s.world(r))
			c.Offers = append(c.Offers, offers[r])
		}
		return c
	}
	return nil
}

// world is the number of a rank in the outermost group.
func (s *Splitter) world(rank int) int {
	if rank >= 0 && rank < len(s.World) {
		return s.World[rank]
	}
	return rank
}

// form makes the group of a child, nil for no child. It ends when the parent
// fails.
func (s *Splitter) form(ctx context.Context, c *Child, form func(ctx context.Context, c *Child) (Group, error)) (Group, error) {
	if c == nil {
		return nil, nil
	}
	var made Group
	c.Closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.children, made)
	}
	if len(c.Members) == 1 {
		l := &local{closedHook: c.Closed, split: Splitter{ID: c.ID, World: c.World}}
		made = l
		return l, nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("%w: a child is to be formed within %v", ErrTimeout, s.Limit))
	defer stop()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	s.mu.Lock()
	cause := s.cause
	s.abort = abort
	s.mu.Unlock()
	if cause != nil {
		return nil, cause
	}
	g, err := form(ctx, c)
	s.mu.Lock()
	s.abort = nil
	if err == nil {
		made = g
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return g, nil
}

// vote tells all ranks whether all have formed what they were to form; peer is
// the first that has not, or -1, and text what it says of that.
func vote(ctx context.Context, x Exchange, problem error) (peer int, text string, err error) {
	own, all := make([]byte, voteSize), make([]byte, voteSize*x.Size())
	if problem != nil {
		own[0] = 1
		binary.LittleEndian.PutUint16(own[2:], uint16(copy(own[4:], problem.Error())))
	}
	if err := x.AllGather(ctx, all, own); err != nil {
		return -1, "", err
	}
	for r := range x.Size() {
		b := all[r*voteSize : (r+1)*voteSize]
		if b[0] != 0 {
			n := min(int(binary.LittleEndian.Uint16(b[2:])), voteSize-4)
			return r, string(b[4 : 4+n]), nil
		}
	}
	return -1, "", nil
}

// adopt holds a child to the life of the parent.
func (s *Splitter) adopt(g Group) {
	if g == nil {
		return
	}
	s.mu.Lock()
	cause, closed := s.cause, s.closed
	if !closed {
		if s.children == nil {
			s.children = map[Group]struct{}{}
		}
		s.children[g] = struct{}{}
	}
	s.mu.Unlock()
	if cause != nil {
		g.Fail(inherited(cause))
	}
	if closed {
		_ = g.Close()
	}
}

// inherited is the cause with which a child fails.
func inherited(cause error) error {
	return fmt.Errorf("the group that this one was split from has failed: %w", cause)
}

// Fail fails the children of a group that has failed. It does not wait.
func (s *Splitter) Fail(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = cause
	abort := s.abort
	children := make([]Group, 0, len(s.children))
	for g := range s.children {
		children = append(children, g)
	}
	s.mu.Unlock()
	if abort != nil {
		abort(cause)
	}
	for _, g := range children {
		g.Fail(inherited(cause))
	}
}

// Close closes the children of a group that is closed; Fail has been called.
func (s *Splitter) Close() error {
	s.mu.Lock()
	s.closed = true
	children := make([]Group, 0, len(s.children))
	for g := range s.children {
		children = append(children, g)
	}
	s.mu.Unlock()
	var first error
	for _, g := range children {
		if err := g.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Children is how many groups that were split off are not closed.
func (s *Splitter) Children() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.children)
}

// Culprit is the rank of this group that a cause is about, -1 if that is not
// known or no member: verdicts, and errors of the groups around this one, have
// the numbers of the outermost group.
func (s *Splitter) Culprit(cause error) int {
	world := culprit(cause)
	if world < 0 || s.World == nil {
		return world
	}
	return slices.Index(s.World, world)
}
