package plan

import "fmt"

// Planner makes plans for one group and remembers its choices. Choices depend
// only on a rounded length, so that a new length seldom needs an estimate. It
// keeps a few hundred choices. One goroutine may use it.
type Planner struct {
	cfg     Config
	choices map[string]Choice
}

// NewPlanner makes a planner.
func NewPlanner(cfg Config) (*Planner, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	return &Planner{cfg: cfg, choices: map[string]Choice{}}, nil
}

// Config returns the planner's configuration with its defaults.
func (p *Planner) Config() Config { return p.cfg }

// Plan is New with the planner's Config.
func (p *Planner) Plan(req Request) (*Plan, error) {
	return newPlan(p.cfg, req, func(most int, typical Request, choose func() Choice) Choice {
		key := fmt.Sprint(typical, most)
		c, ok := p.choices[key]
		if !ok {
			c = choose()
			p.choices[key] = c
		}
		return c
	})
}
