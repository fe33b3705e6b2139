package groupplan

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"ringmaster/distributed/cluster"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// Planner plans the epochs of a leader by Options. What it remembers is the context of the
// first plan, which is that of all, because clients already know it, and what was measured.
type Planner struct {
	options Options
	out     io.Writer // for plans as texts

	mu       sync.Mutex // guards the rest
	context  int        // of the first plan, 0 before it
	last     Planned
	measured bool // last has a placement that was chosen by costs
	costs    groupCosts
}

var _ replica.Planner = (*Planner)(nil)

// NewPlanner makes a planner that writes each plan to out, for people.
func NewPlanner(o Options, out io.Writer) *Planner { return &Planner{options: o, out: out} }

// nextOptions are those of the next plan.
func (p *Planner) nextOptions() Options {
	o := p.options
	if p.context > 0 {
		o.Context = p.context
	}
	return o
}

// Plan implements replica.Planner.
func (p *Planner) Plan(members []cluster.Hello, past replica.Past) (replica.Settings, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	planned, err := p.nextOptions().Plan(members, past.Held)
	text := planned.Text
	defer func() { _, _ = io.WriteString(p.out, text) }()
	if err != nil {
		return replica.Settings{}, err
	}
	p.context, p.measured = planned.Settings.Context, false
	s := &planned.Settings
	both := len(s.Alternatives) > 0
	if both || p.options.Measure && !p.options.Share.Auto && len(members) > 1 {
		known := p.costs.join(members, past.Ran)
		switch {
		case known && both:
			all := []parallel.Placement{s.Placement, s.Alternatives[0]}
			c, why := p.chooser().decide(context.Background(), all)
			text += why
			s.Placement, s.Alternatives, p.measured = c.Of(all), nil, true
		case known:
		case both && past.Held > 0:
			text += "--share auto chose experts: the ranks cannot be measured because they hold running requests\n"
			s.Alternatives = nil
		default:
			s.Measure = true
		}
	}
	p.last = planned
	return *s, nil
}

// Fits implements replica.Planner.
func (p *Planner) Fits(members []cluster.Hello, past replica.Past) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.nextOptions().Plan(members, past.Held)
	return err
}

// Reads implements replica.Planner.
func (p *Planner) Reads(s replica.Settings, i int, before *parallel.Part) int64 {
	n, err := p.options.reads(s, i, before)
	if err != nil {
		slog.Warn("how long the ranks have to read is unknown", "error", err) // the plan itself has succeeded
	}
	return n
}

// Choose implements replica.Planner.
func (p *Planner) Choose(ctx context.Context, costs calibrate.Costs, placements []parallel.Placement) replica.Choice {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.costs.keep(costs)
	c, text := p.chooser().decide(ctx, placements)
	_, _ = io.WriteString(p.out, text)
	s := &p.last.Settings
	s.Placement, s.Alternatives, s.Measure, p.measured = c.Of(placements), nil, false, true
	return c
}

func (p *Planner) chooser() *chooser { return &chooser{p.nextOptions(), &p.costs} }

// Last is the last plan, with the placement that was chosen if there were several; it is
// empty before the first.
func (p *Planner) Last() Planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Expect is what a step of the group is expected to take; false if the group was not
// measured.
func (p *Planner) Expect(ctx context.Context, w calibrate.Work) (cost.Estimate, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.measured {
		return cost.Estimate{}, false, nil
	}
	e, err := p.chooser().expect(ctx, p.last.Settings.Placement, w)
	return e, true, err
}

// LeaderCosts are the costs of rank 0's ops; false if they were not measured.
func (p *Planner) LeaderCosts() (cost.Model, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.costs.now.Models) == 0 {
		return cost.Model{}, false
	}
	return p.costs.now.Models[0], true
}

// Close frees what the planner traces steps with.
func (p *Planner) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.costs.close()
}
