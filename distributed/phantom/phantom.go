// Package phantom makes groups that have only this rank. Their operations leave their
// buffers as they are. A model computes wrong values over such a group, but it runs the ops
// that it would run in a true one:
//
//	g, err := phantom.Group(ctx, 1, 4, phantom.Notes{}) // rank 1 of four
package phantom

import (
	"context"
	"fmt"
	"time"

	"ringmaster/distributed"
)

// Notes are told of the operations of a group. Each may be nil.
type Notes struct {
	Started func(*distributed.Op) // an operation has begun
	Ended   func()                // the host has waited for it
}

// Group makes one rank of a group of so many ranks. It holds nothing that Close would free.
func Group(ctx context.Context, rank, size int, notes Notes) (*distributed.Group, error) {
	l := distributed.Link{Rank: rank, Size: size, GroupID: "phantom", Addrs: make([]string, size), Token: make([]byte, 32), OpTimeout: time.Minute}
	return distributed.Form(ctx, l, func(context.Context, distributed.Link) (distributed.Driver, error) {
		return &driver{notes}, nil
	})
}

// driver is the driver of such a group.
type driver struct{ notes Notes }

// Start implements distributed.Driver.
func (d *driver) Start(op *distributed.Op) error {
	if d.notes.Started != nil {
		d.notes.Started(op)
	}
	return nil
}

// Wait implements distributed.Driver.
func (d *driver) Wait(*distributed.Op) (distributed.Timing, error) {
	if d.notes.Ended != nil {
		d.notes.Ended()
	}
	return distributed.Timing{}, nil
}

// Abort implements distributed.Driver.
func (d *driver) Abort(error) {}

// Describe implements distributed.Driver.
func (d *driver) Describe() distributed.Description {
	return distributed.Description{Kind: "phantom", Topology: "one rank without the others"}
}

// Close implements distributed.Driver.
func (d *driver) Close() error { return nil }

// Child implements distributed.Driver; a phantom has none.
func (d *driver) Child(context.Context, distributed.ChildSpec) (*distributed.Group, error) {
	return nil, fmt.Errorf("%w: a group that exists for one rank has no children", distributed.ErrUnavailable)
}
