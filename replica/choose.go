package replica

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/parallel"
)

// Choice is what an epoch has: one of its placements [1 + Settings.Alternatives], the least
// rows of a step that it divides, and of one that it runs as two micro-batches, 0 for none.
type Choice struct{ Placement, Rows, Micro int }

// Of is the placement that is chosen of all.
func (c Choice) Of(all []parallel.Placement) parallel.Placement {
	return all[c.Placement].DivideRows(c.Rows).MicroBatches(c.Micro)
}

// Choose is called on all ranks of a new group at the same time, before the rank's
// model joins it, and returns the epoch's choice among the placements: the same on all
// ranks, so that it must be the leader's. It may
// measure with the rank's model, which has no sequences then. An error ends the epoch.
type Choose func(ctx context.Context, g *distributed.Group, rank Rank, placements []parallel.Placement) (Choice, error)

// Choosing is a transport over t whose groups choose among the placements of the
// settings as soon as they are connected. Every rank of a group has one, or none: that
// of Worker is alike.
func (p *Program) Choosing(t distributed.Transport, choose Choose) distributed.Transport {
	p.resident.choose = choose
	return choosing{t, p.resident}
}

// Choosing is the same on a follower.
func (w *Worker) Choosing(t distributed.Transport, choose Choose) distributed.Transport {
	w.resident.choose = choose
	return choosing{t, w.resident}
}

// choosing is the transport of Choosing.
type choosing struct {
	distributed.Transport
	resident *resident
}

// Connect implements distributed.Transport. The choice is part of connecting, because
// that is when all ranks have a group and a model, and none runs steps.
func (c choosing) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	g, err := c.Transport.Connect(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := c.resident.chooseOn(ctx, g); err != nil {
		return nil, errors.Join(fmt.Errorf("replica: choosing a placement: %w", err), g.Close())
	}
	return g, nil
}

// chooseOn leaves the chosen placement in the settings.
func (h *resident) chooseOn(ctx context.Context, g *distributed.Group) error {
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()
	if ctx.Err() != nil {
		return context.Cause(ctx) // as in form
	}
	if h.choose == nil || h.rank == nil || !h.settings.Measure {
		return nil
	}
	h.rank.Forget()
	h.loads++ // whoever still counts on its sequences must see that they are gone
	all := h.settings.placements()
	c, err := h.choose(ctx, g, h.rank, all)
	if err != nil {
		return err
	}
	if c.Placement < 0 || c.Placement >= len(all) || c.Rows < 0 || c.Micro < 0 {
		return fmt.Errorf("placement %d of %d, with steps divided from %d rows on and in micro-batches from %d on, was chosen", c.Placement, len(all), c.Rows, c.Micro)
	}
	h.settings.Placement, h.settings.Measure, h.settings.Alternatives = c.Of(all), false, nil
	return nil
}
