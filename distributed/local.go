package distributed

import (
	"context"
	"fmt"
	"math"
)

// Local makes a group of one rank: reductions, gathers and scatters copy,
// Barrier returns at once, Send and Recv fail with ErrArgument.
func Local() *Group { return newLocal(Link{}) }

func newLocal(l Link) *Group {
	l.Rank, l.Size, l.OpTimeout = 0, 1, math.MaxInt64
	g := newGroup(l)
	g.driver, g.quiet = localDriver{}, false
	return g
}

// localDriver is the Driver of a group of one rank: it never waits.
type localDriver struct{}

// Start copies; every operation has Src and Dst of the same length, or no Src.
func (localDriver) Start(op *Op) error {
	copy(op.Dst, op.Src)
	return nil
}

func (localDriver) Wait(*Op) (Timing, error) { return Timing{}, nil }
func (localDriver) Abort(error)              {}
func (localDriver) Describe() Description    { return Description{Kind: "local", Topology: "one rank"} }
func (localDriver) Close() error             { return nil }

// Child is never called, because Group itself makes children of one rank.
func (localDriver) Child(_ context.Context, c ChildSpec) (*Group, error) {
	return nil, fmt.Errorf("%w: a group of one rank has no child of %d", ErrUnavailable, c.Link.Size)
}
