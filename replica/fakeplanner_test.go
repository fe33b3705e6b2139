package replica

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
)

// fakeHost is a Host that loads models, and measures only if measure is set.
type fakeHost struct {
	load    func(s Settings, rank int) (Rank, error)
	measure func(g *distributed.Group, p parallel.Placement) (calibrate.Costs, error)
}

func hostOf(load func(s Settings, rank int) (Rank, error)) *fakeHost { return &fakeHost{load: load} }

func (h *fakeHost) Load(s Settings, rank int) (Rank, error) { return h.load(s, rank) }

func (h *fakeHost) Measure(_ context.Context, g *distributed.Group, _ Rank, p parallel.Placement) (calibrate.Costs, error) {
	if h.measure == nil {
		return calibrate.Costs{}, nil
	}
	return h.measure(g, p)
}

func (h *fakeHost) ResidentBytes() int64 { return 0 }

// fakePlanner is a Planner that plans by a function and always chooses the same.
type fakePlanner struct {
	plan   func(members []cluster.Hello) (Settings, error)
	choice Choice
	costs  calibrate.Costs // that it was told last
}

func (p *fakePlanner) Plan(members []cluster.Hello, _ Past) (Settings, error) { return p.plan(members) }

func (p *fakePlanner) Fits([]cluster.Hello, Past) error { return nil }

func (p *fakePlanner) Reads(Settings, int, *parallel.Part) int64 { return 0 }

func (p *fakePlanner) Lost([]parallel.Part) int64 { return 0 }

func (p *fakePlanner) Choose(_ context.Context, costs calibrate.Costs, _ []parallel.Placement) Choice {
	p.costs = costs
	return p.choice
}
