package plan

import "fmt"

// Planner makes plans for one group and keeps those used last: the operations
// of a model repeat. It also keeps what it chose for a length, a few hundred
// numbers, so that a new length costs no estimate. It is for one goroutine.
type Planner struct {
	cfg   Config
	limit int
	plans map[string]*Plan
	order []string // oldest first
	memo  map[string]Choice
}

// NewPlanner makes a planner that keeps up to limit plans.
func NewPlanner(cfg Config, limit int) (*Planner, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	return &Planner{cfg: cfg, limit: max(1, limit), plans: map[string]*Plan{}, memo: map[string]Choice{}}, nil
}

// Plan is New with the planner's Config. The plan is shared: do not change it.
func (p *Planner) Plan(req Request) (*Plan, error) {
	key := fmt.Sprint(req)
	if plan, ok := p.plans[key]; ok {
		return plan, nil
	}
	plan, err := newPlan(p.cfg, req, p.memo)
	if err != nil {
		return nil, err
	}
	if len(p.order) == p.limit {
		delete(p.plans, p.order[0])
		p.order = append(p.order[:0], p.order[1:]...)
	}
	p.plans[key] = plan
	p.order = append(p.order, key)
	return plan, nil
}

// Step says how operations from From bytes on are done, up to the length of the
// next step.
type Step struct {
	From   int64
	Choice Choice
	Rails  int
}

// Table lists how an operation is done by its length up to most, for people to
// read: each line where the algorithm, the directions or the rails change.
func Table(cfg Config, req Request, most int64) ([]Step, error) {
	var steps []Step
	for n := int64(Frame); n <= most; n = bucket(n+1, 8) {
		req.Bytes = n
		p, err := New(cfg, req)
		if err != nil {
			return nil, err
		}
		s := Step{From: n, Choice: p.Choice, Rails: p.Rails}
		if k := len(steps); k > 0 {
			last := steps[k-1]
			if last.Choice.Algorithm == s.Choice.Algorithm && last.Choice.Directions == s.Choice.Directions && last.Rails == s.Rails {
				continue
			}
		}
		steps = append(steps, s)
	}
	return steps, nil
}
