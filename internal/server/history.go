package server

import (
	"context"
	"time"

	"ringmaster/api/web"
	"ringmaster/distributed/cluster"
	"ringmaster/engine"
)

// sample keeps the history of the cluster page until ctx ends. It asks no other rank.
func (c *clusterStatus) sample(ctx context.Context, e *engine.Engine, h *web.History) {
	tick := time.NewTicker(web.SampleEvery)
	defer tick.Stop()
	for now := time.Now(); ; {
		h.Add(now, c.numbers(e.Stats()))
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// numbers are those of the engine with how many ranks compute.
func (c *clusterStatus) numbers(e engine.Stats) web.Counts {
	out := web.Counts{Prefilled: e.PrefillTokens, Generated: e.Tokens, Active: e.Active, Queued: e.Queued, Members: 1, Ranks: 1}
	if leader := c.node.Cluster(); leader != nil {
		s := leader.Status()
		out.Members, out.Ranks = 0, len(s.Ranks)
		for _, r := range s.Ranks {
			if r.State == cluster.Member {
				out.Members++
			}
		}
	}
	return out
}
