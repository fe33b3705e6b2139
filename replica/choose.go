package replica

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
)

// Choice is what an epoch has: one of its placements [1 + Settings.Alternatives], the least
// rows of a step that it divides, and of one that it runs as two micro-batches, 0 for none.
type Choice struct{ Placement, Rows, Micro int }

// Of is the placement that is chosen of all.
func (c Choice) Of(all []parallel.Placement) parallel.Placement {
	return all[c.Placement].DivideRows(c.Rows).MicroBatches(c.Micro)
}

// Transport is a transport over t whose groups choose among the placements of the settings
// as soon as they are connected. Every rank of a group has one.
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

// chooseOn measures the group if the settings say so, and leaves the placement that rank 0
// chooses in the settings.
func (h *resident) chooseOn(ctx context.Context, g *distributed.Group) error {
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()
	if ctx.Err() != nil {
		return context.Cause(ctx) // as in form
	}
	if h.rank == nil || !h.settings.Measure {
		return nil
	}
	h.rank.Forget()
	h.loads++ // whoever still counts on its sequences must see that they are gone
	all := h.settings.placements()
	// Ops are timed on all rows of a step: those of other ranks would be missing.
	costs, err := h.host.Measure(ctx, g, h.rank, all[len(all)-1].DivideRows(0).MicroBatches(0))
	if err != nil {
		return err
	}
	var c Choice
	if h.planner != nil {
		c = h.planner.Choose(ctx, costs, all)
	}
	agreed, err := calibrate.Agree(ctx, g, c.Placement, c.Rows, c.Micro)
	if err != nil {
		return err
	}
	c = Choice{Placement: agreed[0], Rows: agreed[1], Micro: agreed[2]}
	if c.Placement < 0 || c.Placement >= len(all) || c.Rows < 0 || c.Micro < 0 {
		return fmt.Errorf("placement %d of %d, with steps divided from %d rows on and in micro-batches from %d on, was chosen", c.Placement, len(all), c.Rows, c.Micro)
	}
	h.settings.Placement, h.settings.Measure, h.settings.Alternatives = c.Of(all), false, nil
	return nil
}
