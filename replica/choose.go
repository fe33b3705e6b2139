package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
)

// Choice is the choice for an epoch: one of its placements [1 + Settings.Alternatives], the
// rows from which it divides a step, 0 for never, and the speeds of the ranks, nil for those
// of the placement. With a helper, Rows is from how many rows on a step goes through it, First its
// first layer, and Missing that of parallel.Help. SequenceBudget, if not 0, takes the place of that of the settings on rank 0,
// because ranks in stages have caches of other layers.
type Choice struct {
	Placement, Rows int
	First, Missing  int
	Speeds          []int
	SequenceBudget  int64
}

// Of returns the chosen placement from all, without copies that would never serve.
func (c Choice) Of(all []parallel.Placement) parallel.Placement {
	if p := all[c.Placement]; p.Helped() {
		return p.HelpedFrom(c.First, parallel.Help{Rows: c.Rows, Missing: int64(c.Missing)})
	}
	p := all[c.Placement].DivideRows(c.Rows).WithSpeeds(c.Speeds)
	if p.Waits() && !p.DividesRows() {
		return p.WithoutCopies()
	}
	return p
}

// Transport returns a transport over t. Its groups choose among the placements of the
// settings as soon as they are connected. Every rank of a group needs one.
func (p *Program) Transport(t distributed.Transport) distributed.Transport {
	return choosing{t, p.resident}
}

// Transport is Program.Transport on a follower.
func (w *Worker) Transport(t distributed.Transport) distributed.Transport {
	return choosing{t, w.resident}
}

// choosing is the transport of Program.Transport.
type choosing struct {
	distributed.Transport
	resident *resident
}

// Connect implements distributed.Transport. The choice is part of connecting, because all
// ranks then have a group and a model, and none runs steps.
func (c choosing) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	g, err := c.Transport.Connect(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := c.resident.chooseOn(ctx, g); err != nil {
		return nil, errors.Join(fmt.Errorf("choosing a placement: %w", err), g.Close())
	}
	return g, nil
}

// chooseOn measures the group if the settings say so, and sets their placement to rank 0's
// choice; if that has stages it splits the group.
func (h *resident) chooseOn(ctx context.Context, g *distributed.Group) error {
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()
	if ctx.Err() != nil {
		return context.Cause(ctx) // as in form
	}
	h.inside = nil
	if h.rank != nil && h.settings.Measure {
		if err := h.choose(ctx, g); err != nil {
			return err
		}
	}
	var err error
	h.inside, err = h.settings.Placement.SplitStages(ctx, g)
	return err
}

// choose measures the group and sets the placement of the settings to rank 0's choice. The
// caller has the turn.
func (h *resident) choose(ctx context.Context, g *distributed.Group) error {
	h.rank.Forget()
	h.loads++ // so that every user of its sequences sees that they are gone
	all := h.settings.placements()
	// Ops are timed on all rows of a step, because otherwise the rows of other ranks would
	// be missing, and on all layers.
	whole := slices.DeleteFunc(slices.Clone(all), parallel.Placement.Staged)
	costs, err := h.host.Measure(ctx, g, h.rank, whole[len(whole)-1].DivideRows(0))
	if err != nil {
		return err
	}
	var c Choice
	if h.planner != nil {
		c = h.planner.Choose(ctx, costs, all)
	}
	numbers := append([]int{c.Placement, c.Rows, c.First, c.Missing}, make([]int, g.Size())...)
	speeds := numbers[4:]
	copy(speeds, c.Speeds)
	agreed, err := calibrate.Agree(ctx, g, numbers...)
	if err != nil {
		return err
	}
	budget := c.SequenceBudget
	c = Choice{Placement: agreed[0], Rows: agreed[1], First: agreed[2], Missing: agreed[3]}
	speeds = agreed[4:]
	if c.Placement < 0 || c.Placement >= len(all) || c.Rows < 0 {
		return fmt.Errorf("invalid choice: placement %d of %d, steps divided from %d rows", c.Placement, len(all), c.Rows)
	}
	if speeds[0] > 0 {
		c.Speeds = speeds
	}
	p := c.Of(all)
	if err := p.Check(p.Sizes(), g.Size()); err != nil {
		return fmt.Errorf("invalid choice: %w", err)
	}
	h.settings.Placement, h.settings.Measure, h.settings.Alternatives = p, false, nil
	if budget > 0 {
		h.settings.SequenceBudget = budget
	}
	return nil
}
