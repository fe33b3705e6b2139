package replica

import (
	"context"

	"ringmaster/distributed/cluster"
)

// Program is the leader's part in forming epochs, a cluster.Planner.
type Program struct {
	resident *resident
	plan     func(members []cluster.Hello) (Settings, error)
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
	return s.Encode()
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
func (p *Program) Start(e cluster.Epoch) error { return p.resident.start(e) }

// Close frees the model. ctx bounds the wait for a step in flight.
func (p *Program) Close(ctx context.Context) error { return p.resident.close(ctx) }
