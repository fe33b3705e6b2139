package replica

import (
	"context"

	"ringmaster/distributed/cluster"
	"ringmaster/parallel"
)

// Program is the leader's part in forming epochs, a cluster.Planner.
type Program struct {
	resident *resident
	plan     func(members []cluster.Hello) (Settings, error)
	fits     func(members []cluster.Hello) error
	reading  reading
}

var _ cluster.Planner = (*Program)(nil)

// NewProgram makes the program of rank 0. plan decides the settings of an epoch
// from the hellos of all ranks; it must return quickly and not call the cluster.
func NewProgram(load Load, plan func(members []cluster.Hello) (Settings, error)) *Program {
	return &Program{resident: newResident(0, load, true), plan: plan}
}

// Plan implements cluster.Planner.
func (p *Program) Plan(members []cluster.Hello) ([]byte, error) {
	s, err := p.plan(members)
	if err != nil {
		return nil, err
	}
	settings, err := s.Encode()
	if err == nil {
		p.reading.planned(members, s)
	}
	return settings, err
}

// Reading is how Reads finds out the bytes of the file that member i of a placement
// reads and did not need for part before; nil: it has read nothing. Without it nothing is
// read. It must be called before the program is used.
func (p *Program) Reading(fresh func(s Settings, i int, before *parallel.Part) int64) {
	p.reading.fresh = fresh
}

// Reads implements cluster.Planner.
func (p *Program) Reads() cluster.Reads { return p.reading.last() }

// Fitting is how Fits finds out whether members have a plan; without it all do. fits has
// no effect.
func (p *Program) Fitting(fits func(members []cluster.Hello) error) { p.fits = fits }

// Using is Worker.Using for rank 0.
func (p *Program) Using(memory func() int64) { p.resident.memory = memory }

// Fits implements cluster.Planner.
func (p *Program) Fits(members []cluster.Hello) error {
	if p.fits == nil {
		return nil
	}
	return p.fits(members)
}

// Describe implements cluster.Planner.
func (p *Program) Describe(i int) string { return p.resident.describe(i) }

// Form implements cluster.Program: it loads the model unless that of the previous
// epoch fits the settings.
func (p *Program) Form(ctx context.Context, settings []byte) error {
	return p.resident.form(ctx, settings)
}

// Start implements cluster.Program: the model joins the group and drops all
// sequences. It waits for a step of the previous epoch until this epoch ends.
func (p *Program) Start(e cluster.Epoch) error {
	placement, err := p.resident.start(e)
	if err == nil {
		p.reading.began(e.Members, placement)
	}
	return err
}

// Close frees the model. ctx bounds the wait for a step in flight.
func (p *Program) Close(ctx context.Context) error { return p.resident.close(ctx) }
