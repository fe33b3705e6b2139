package groupplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"ringmaster/distributed/cluster"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// Planner plans the epochs of a leader by Options. What it remembers is the context of the
// first plan, which is that of all, because clients already know it, its length of steps, and what
// was measured.
type Planner struct {
	options Options
	out     io.Writer // for plans as texts

	mu       sync.Mutex // guards the rest
	context  int        // of the first plan, 0 before it
	steps    int        // most tokens of a step, of the first plan: models with other rings lose sequences
	last     Planned
	measured bool // last has a placement that was chosen by costs
	costs    groupCosts
	// expectation is what Expected returns.
	expectation string
	choice      *replica.Choice // that later epochs keep, nil before costs have decided
}

var _ replica.Planner = (*Planner)(nil)

// NewPlanner makes a planner that writes each plan to out, for people.
func NewPlanner(o Options, out io.Writer) *Planner { return &Planner{options: o, out: out} }

// nextOptions are those of the next plan.
func (p *Planner) nextOptions() Options {
	o := p.options
	if p.context > 0 {
		o.Context, o.MaxTokens = p.context, p.steps
	}
	return o
}

// Plan implements replica.Planner.
func (p *Planner) Plan(members []cluster.Hello, past replica.Past) (replica.Settings, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	planned, err := p.nextOptions().PlanOrStages(members, past.Held)
	text := planned.Text
	defer func() { _, _ = io.WriteString(p.out, text) }() // one table of ranks, once its placement is known
	if err != nil {
		return replica.Settings{}, err
	}
	p.context, p.steps, p.measured, p.expectation = planned.Settings.Context, planned.Settings.MaxTokens, false, ""
	p.last = planned
	s := &p.last.Settings
	auto := len(s.Alternatives) > 0
	switch {
	case s.Placement.Staged(): // costs are not known of them
	case p.last.helper != nil:
		text = p.planHelper(members, past)
	case !auto && !(p.options.Measure && !p.options.Share.Auto && len(members) > 1):
	case p.costs.join(members, past.Ran):
		p.last = p.last.withSpeeds(p.costs.now.Models)
		switch {
		case auto && p.choice != nil && p.choice.Placement < len(p.last.placements()):
			text = p.settle(kept(*p.choice))
		case auto:
			all := p.last.placements()
			if past.Held > 0 { // sequences would end with the epoch
				all = slices.DeleteFunc(all, parallel.Placement.Staged)
			}
			text = p.settle(p.chooser().decide(context.Background(), all))
		}
	case auto && past.Held > 0:
		text = p.settle(p.options.fallback(p.last.placements(), errors.New("the ranks cannot be measured because they hold running requests")))
	default:
		s.Measure = true
		if auto {
			text = fmt.Sprintf("%s: there is room for --share experts and for all; the ranks measure which is faster when they are connected\n", planned.Model.Name)
		}
	}
	return *s, nil
}

// planHelper settles a plan with a helper, or lets the ranks measure, and returns what to print.
func (p *Planner) planHelper(members []cluster.Hello, past replica.Past) string {
	plan := p.last
	if len(p.options.Share.Shares.Numbers) > 0 { // the speeds are given
		return plan.Text
	}
	known := p.costs.join(members, past.Ran)
	c := p.chooser()
	switch {
	case p.choice != nil:
		return p.settle(c.keptHelper(plan, *p.choice))
	case known:
		return p.settle(c.decideHelper(context.Background(), plan))
	case past.Held > 0:
		c.costs = calibrate.Costs{Missing: "they hold running requests"}
		return p.settle(c.decideHelper(context.Background(), plan))
	}
	p.last.Settings.Measure = true
	return fmt.Sprintf("%s: the ranks measure which layers of prompts the helper computes when they are connected\n", plan.Model.Name)
}

// settle makes the last plan that of a decision, and returns what to print of both.
func (p *Planner) settle(d decision) string {
	switch {
	case d.unknown != nil && p.options.Share.Auto:
		slog.Warn("--share auto divides the experts alone because what to expect is not known", "error", d.unknown)
	case d.unknown != nil && p.options.Share.Helper:
		slog.Warn("the layers of the helper are not chosen by costs because what to expect is not known", "error", d.unknown)
	case d.slower != "":
		slog.Warn("the group is expected to be slower than one of its ranks alone", "comparison", d.slower)
	}
	shown := len(p.last.Settings.Alternatives) == 0 && p.last.helper == nil // the plan has been printed
	copies := p.last.Settings.Placement.Copies()
	p.last, p.measured, p.expectation = p.last.choose(d.Choice), d.unknown == nil, d.line
	if d.unknown == nil && (p.options.Share.Auto || p.options.Share.Helper) {
		p.choice = &replica.Choice{Placement: d.Placement, Rows: d.Rows, First: d.First, Missing: d.Missing} // speeds are those of the members
	}
	switch {
	case shown && copies && !p.last.Settings.Placement.Copies():
		return d.text + "no copies of experts are used, because " + waitsAlways + "\n"
	case shown:
		return d.text
	}
	return p.last.Text + d.text
}

// Fits implements replica.Planner.
func (p *Planner) Fits(members []cluster.Hello, past replica.Past) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.nextOptions().PlanOrStages(members, past.Held)
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

// Lost implements replica.Planner.
func (p *Planner) Lost(parts []parallel.Part) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.Model.Lost(parts)
}

// Choose implements replica.Planner.
func (p *Planner) Choose(ctx context.Context, costs calibrate.Costs, placements []parallel.Placement) replica.Choice {
	p.mu.Lock()
	defer p.mu.Unlock()
	if costs.Missing == "" {
		p.costs.keep(costs)
	}
	c := p.chooser()
	c.costs = costs
	if p.last.helper != nil {
		d := c.decideHelper(ctx, p.last)
		_, _ = io.WriteString(p.out, p.settle(d))
		d.SequenceBudget = p.last.Settings.SequenceBudget
		return d.Choice
	}
	speeds := p.last.speeds(costs.Models)
	placements = slices.Clone(placements)
	for i, x := range placements {
		if !x.Staged() { // nothing is assigned among stages
			placements[i] = x.WithSpeeds(speeds)
		}
	}
	d := c.decide(ctx, placements)
	staged := placements[d.Placement].Staged()
	if !staged {
		d.Speeds, d.text = speeds, d.text+speedsLine(p.costs.members, speeds)
	}
	_, _ = io.WriteString(p.out, p.settle(d))
	if staged {
		d.SequenceBudget = p.last.Settings.SequenceBudget
	}
	return d.Choice
}

// chooser compares the placements of the members.
func (p *Planner) chooser() *chooser {
	o := p.nextOptions()
	return &chooser{o: o, members: p.costs.members, costs: p.costs.now,
		tracer: func() (*calibrate.Tracer, error) { return p.costs.open(o) }}
}

// Expected says in one line what --share auto chose and why, and what is expected of the
// group; "" for a share that was given and not measured.
func (p *Planner) Expected() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expectation
}

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
