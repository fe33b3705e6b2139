package calibrate

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/phantom"
	"ringmaster/parallel/cost"
)

// phantomGroup makes one rank of a group of so many ranks that exists for this rank alone. Its
// exchanges are noted in trace.
func phantomGroup(ctx context.Context, rank, size int, trace *cost.Trace) (*distributed.Group, error) {
	note := func(e cost.Event) { *trace = append(*trace, e) }
	return phantom.Group(ctx, rank, size, phantom.Notes{
		Started: func(op *distributed.Op) { note(cost.Event{Start: exchangeOf(op)}) },
		Ended:   func() { note(cost.Event{}) },
	})
}

// exchangeOf describes an operation of a group.
func exchangeOf(op *distributed.Op) *cost.Exchange {
	x := &cost.Exchange{Kind: op.Kind.String(), Bytes: len(op.Dst), Root: -1}
	switch op.Kind {
	case distributed.Gather:
		x.Root, x.Bytes = op.Root, 0
		for _, n := range op.Sizes {
			x.Bytes += n
		}
	case distributed.ReduceScatter:
		x.Bytes = len(op.Src)
	}
	return x
}
