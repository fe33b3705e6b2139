package decoder

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/distributed/phantom"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/model"
	"ringmaster/parallel"
)

// HoldWeights lets the backend hold the weights that this rank's ops read from now on, in place
// of those of an earlier call (kernels.Hold). It is called when it is known which part of the
// model the rank computes: after Join, or without one if the rank is alone. A backend that
// copies weights copies them now. Without it the device gets each weight when an op first reads
// it. It must not run during a step.
func (m *Model[C]) HoldWeights() error {
	if m.weights == nil {
		return nil
	}
	return kernels.Hold(m.o.Backend, func() ([]kernels.Span, error) {
		spans, err := m.weights(m.joined)
		if m.drafter != nil && m.drafter.block.weights != nil && err == nil { // it runs without a group
			var more []kernels.Span
			more, err = m.drafter.block.weights(joined{})
			spans = append(spans, more...)
		}
		if err != nil {
			return nil, m.errorf("which weights this rank reads: %w", err)
		}
		return spans, nil
	})
}

// joined is the place of a model in a group, of so many ranks and with so many in its stage; 0:
// no group.
type joined struct {
	rank, size    int
	inside, peers int // rank and ranks in the stage
	placement     parallel.Placement
}

// joinedTo describes the groups of Join; g is nil without one.
func joinedTo(g, inside *distributed.Group, p parallel.Placement) joined {
	var j joined
	if g == nil || g.Size() == 1 {
		return j
	}
	j.rank, j.size, j.placement = g.Rank(), g.Size(), p
	if inside != nil {
		j.inside, j.peers = inside.Rank(), inside.Size()
	}
	return j
}

// enter joins a model to groups of this place in which the other ranks do not exist.
func (j joined) enter(join func(g, inside *distributed.Group, p parallel.Placement) error) (err error) {
	if j.size == 0 {
		return nil
	}
	ctx := context.Background()
	g, err := phantom.Group(ctx, j.rank, j.size, phantom.Notes{})
	if err != nil {
		return err
	}
	var inside *distributed.Group
	if j.peers > 0 {
		if inside, err = phantom.Group(ctx, j.inside, j.peers, phantom.Notes{}); err != nil {
			return err
		}
	}
	return join(g, inside, j.placement)
}

// rehearse runs steps of one token on a backend that computes nothing and checks the
// arguments of every op: the first of a sequence, and the late ones for which the context
// has room, with each choice of what is wanted, at a place in a group. It returns what was
// checked.
func (a *Architecture[C]) rehearse(b kernels.Backend, o OpenOptions, fingerprint string, at joined, wants ...model.Want) (_ *contract.Checker, err error) {
	checker := contract.NewChecker(b)
	m, _, err := a.build(checker, OpenOptions{Context: o.Context, MaxTokens: 1, Reduce: o.Reduce, Wire: o.Wire}, fingerprint)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := at.enter(m.join); err != nil {
		return nil, fmt.Errorf("a rehearsal as rank %d of %d: %w", at.rank, at.size, err)
	}
	positions := []int{0}
	for _, pos := range a.Late {
		if pos > 0 && pos < o.Context {
			positions = append(positions, pos)
		}
	}
	var errs []error
	for _, want := range wants {
		errs = append(errs, m.Rehearse(want, positions...))
	}
	return checker, errors.Join(errs...)
}
