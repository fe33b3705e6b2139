package calibrate

import (
	"context"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/parallel/cost"
)

// phantom is the driver of a group that has only this rank. Its operations leave their
// buffers as they are. A model computes wrong values over it, but runs the ops that it
// would run in a true group.
type phantom struct {
	trace *cost.Trace // where exchanges are noted; nil: nowhere
}

// phantomGroup makes one rank of a group of so many ranks over a phantom.
func phantomGroup(ctx context.Context, rank, size int, trace *cost.Trace) (*distributed.Group, error) {
	l := distributed.Link{Rank: rank, Size: size, GroupID: "phantom", Addrs: make([]string, size), Token: make([]byte, 32), OpTimeout: time.Minute}
	return distributed.Form(ctx, l, func(context.Context, distributed.Link) (distributed.Driver, error) {
		return &phantom{trace}, nil
	})
}

// Start implements distributed.Driver.
func (p *phantom) Start(op *distributed.Op) error {
	if p.trace == nil {
		return nil
	}
	x := cost.Exchange{Kind: op.Kind.String(), Bytes: len(op.Dst), Root: -1}
	switch op.Kind {
	case distributed.Gather:
		x.Root, x.Bytes = op.Root, 0
		for _, n := range op.Sizes {
			x.Bytes += n
		}
	case distributed.ReduceScatter:
		x.Bytes = len(op.Src)
	}
	*p.trace = append(*p.trace, cost.Event{Start: &x})
	return nil
}

// Wait implements distributed.Driver.
func (p *phantom) Wait(*distributed.Op) (distributed.Timing, error) {
	if p.trace != nil {
		*p.trace = append(*p.trace, cost.Event{})
	}
	return distributed.Timing{}, nil
}

// Abort implements distributed.Driver.
func (p *phantom) Abort(error) {}

// Describe implements distributed.Driver.
func (p *phantom) Describe() distributed.Description {
	return distributed.Description{Kind: "phantom", Topology: "one rank without the others"}
}

// Close implements distributed.Driver.
func (p *phantom) Close() error { return nil }

// Child implements distributed.Driver; a phantom has none.
func (p *phantom) Child(context.Context, distributed.ChildSpec) (*distributed.Group, error) {
	return nil, fmt.Errorf("%w: a group that exists for one rank has no children", distributed.ErrUnavailable)
}
