package lockstep

import (
	"context"

	"ringmaster/distributed/cluster"
)

// Program is the leader's part in forming epochs, a cluster.Planner.
type Program struct {
	host *host
	plan func(members []cluster.Hello) (Settings, error)
}

var _ cluster.Planner = (*Program)(nil)

// NewProgram makes the program of rank 0. plan decides the settings of an
// epoch from what the ranks have said; it must return at once and not call the
// cluster.
func NewProgram(load Load, plan func(members []cluster.Hello) (Settings, error)) *Program {
	return &Program{host: newHost(0, load), plan: plan}
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
func (p *Program) Describe(i int) string { return p.host.describe(i) }

// Form implements cluster.Program: it loads the model unless the one of the
// epoch before serves.
func (p *Program) Form(ctx context.Context, settings []byte) error { return p.host.form(ctx, settings) }

// Start implements cluster.Program: the model joins the group and forgets all
// sequences. It waits for a step of the epoch before to end, as long as this
// epoch lives.
func (p *Program) Start(e cluster.Epoch) error { return p.host.start(e) }

// Close frees the model. ctx bounds the wait for a step under way.
func (p *Program) Close(ctx context.Context) error { return p.host.close(ctx) }
