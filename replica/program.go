package replica

import (
	"context"
	"sync/atomic"

	"ringmaster/distributed/cluster"
)

// Program is the leader's part in forming epochs, a cluster.Planner.
type Program struct {
	resident *resident
	planner  Planner
	reading  reading
	leader   atomic.Pointer[Leader] // nil until steps may run
}

var _ cluster.Planner = (*Program)(nil)

// NewProgram makes the program of rank 0.
func NewProgram(h Host, p Planner) *Program {
	r := newResident(0, h, true)
	r.planner = p
	return &Program{resident: r, planner: p, reading: reading{fresh: p.Reads, lost: p.Lost}}
}

// past is what the planner may not disturb.
func (p *Program) past() Past {
	if l := p.leader.Load(); l != nil {
		return Past{Ran: true, Held: l.Held()}
	}
	return Past{}
}

// Plan implements cluster.Planner.
func (p *Program) Plan(members []cluster.Hello) ([]byte, error) {
	s, err := p.planner.Plan(members, p.past())
	if err != nil {
		return nil, err
	}
	settings, err := s.Encode()
	if err == nil {
		p.reading.planned(members, s)
	}
	return settings, err
}

// Reads implements cluster.Planner.
func (p *Program) Reads() cluster.Reads { return p.reading.last() }

// Fits implements cluster.Planner.
func (p *Program) Fits(members []cluster.Hello) error { return p.planner.Fits(members, p.past()) }

// Describe implements cluster.Planner.
func (p *Program) Describe(i int) string { return p.resident.describe(i) }

// Form implements cluster.Program: it loads the model unless that of the previous
// epoch fits the settings.
func (p *Program) Form(ctx context.Context, settings []byte) error {
	return p.resident.form(ctx, settings)
}

// Start implements cluster.Program: the model joins the group and keeps the sequences
// that the steps of the new epoch continue. It waits for a step of the previous epoch until this epoch ends.
func (p *Program) Start(e cluster.Epoch) error {
	placement, err := p.resident.start(e)
	if err == nil {
		p.reading.began(e.Members, placement)
	}
	return err
}

// Close frees the model. ctx bounds the wait for a step in flight.
func (p *Program) Close(ctx context.Context) error { return p.resident.close(ctx) }
