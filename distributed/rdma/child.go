package rdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/bringup"
	"ringmaster/distributed/rdma/matrix"
)

// A child is brought up like its parent: its members make a group of the side
// transport for it, use the open devices, make their own queue pairs and memory,
// and prove every rail. The parent supplies what is already known: the cables,
// the measured wires and the rules of its rank 0. If the members' devices have
// no resources left, or their cables form neither a ring nor a mesh, that group
// of the side transport is the child, on all members.

// Child is described at distributed.Driver.
func (d *driver) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	t := d.t
	if err := t.turn(ctx); err != nil {
		return nil, err
	}
	defer t.done()
	over := c.Link
	var rails atomic.Pointer[driver]
	over.Suspect = func(peer int, cause error) {
		r := rails.Load()
		switch {
		case r == nil:
			c.Link.Suspect(peer, cause)
		case !errors.Is(cause, distributed.ErrPeerGone): // the liveness connection reports a death
			r.suspect(peer, cause)
		}
	}
	side, err := t.opts.Side.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	p := d.eng.Plan()
	rules := d.rails.Rules
	rules.Cap, rules.Inside, rules.Model = p.Cap, p.Inside, p.Model
	who := fmt.Sprintf("child %s of world ranks %v: ", c.Link.GroupID, c.Link.World)
	child, err := t.form(ctx, c.Link, side, bringup.Config{Matrix: members(d.rails.Known, c.Members), Rules: rules,
		Patience: min(t.opts.Tuning.TokenTimeout, c.Link.OpTimeout/8), Child: true})
	if err == nil {
		rails.Store(child.Driver().(*driver))
		t.report(who, child)
		return child, nil
	}
	if !bringup.IsVote(err) || ctx.Err() != nil {
		_ = side.Close()
		return nil, err // not the same on all members
	}
	note := fmt.Sprintf("%sno rails, so all its members use %s: %v", who, t.opts.Side.Name(), err)
	t.opts.Report(note)
	side.AddNote(note)
	return side, nil
}

// part is members for ranks of the world. It returns an error if the matrix
// lacks one of them.
func part(m matrix.Matrix, world []int) (matrix.Matrix, error) {
	if len(m) <= slices.Max(world) {
		return nil, fmt.Errorf("%w: the device matrix has %d rows, but rank %d is a member; write a row for each rank", distributed.ErrConfig, len(m), slices.Max(world))
	}
	return members(m, world), nil
}

// members returns the part of a matrix for some ranks, in their order.
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
