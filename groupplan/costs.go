package groupplan

import (
	"fmt"

	"ringmaster/distributed/cluster"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel/cost"
)

// groupCosts is what has been measured on the groups of a leader.
type groupCosts struct {
	members []cluster.Hello
	leader  cluster.Hello         // of the last group that was measured
	ranks   map[string]cost.Model // by process: a member is measured once
	now     calibrate.Costs       // of the members
	links   cost.Links            // of the last group that was measured
	tracer  *calibrate.Tracer     // nil before it is needed
}

// process names a member from epoch to epoch. The leader's hello has no process.
func process(m cluster.Hello) string { return fmt.Sprintf("%d %s", m.Rank, m.Process) }

// join makes the members those of the group that forms, and reports whether their costs
// are known. Once steps have run the ranks hold sequences, and nothing is measured: a
// newcomer is then taken to be like a rank that is known, since all have the same
// kernels.
func (c *groupCosts) join(members []cluster.Hello, ran bool) bool {
	c.members, c.now = members, calibrate.Costs{Links: c.links}
	for _, m := range members {
		ops, ok := c.ranks[process(m)]
		if !ok && (!ran || len(c.ranks) == 0) {
			c.now = calibrate.Costs{}
			return false
		}
		if !ok {
			ops = c.ranks[process(c.leader)]
		}
		c.now.Models = append(c.now.Models, ops)
	}
	return true
}

// keep remembers the costs of the members.
func (c *groupCosts) keep(costs calibrate.Costs) {
	c.now, c.links, c.leader = costs, costs.Links, c.members[0]
	if c.ranks == nil {
		c.ranks = map[string]cost.Model{}
	}
	if len(c.ranks) > 64 { // processes that are long gone
		clear(c.ranks)
	}
	for r, m := range c.members {
		c.ranks[process(m)] = costs.Models[r]
	}
}

// open returns the tracer of a model that is opened by the options.
func (c *groupCosts) open(o Options) (*calibrate.Tracer, error) {
	if c.tracer == nil {
		open := o.open()
		open.DraftFile = nil // a block for multi-token prediction is no part of a step
		var err error
		if c.tracer, err = calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(o.Model, b, open) }); err != nil {
			return nil, err
		}
	}
	return c.tracer, nil
}

// close frees the tracer.
func (c *groupCosts) close() error {
	if c.tracer == nil {
		return nil
	}
	err := c.tracer.Close()
	c.tracer = nil
	return err
}
