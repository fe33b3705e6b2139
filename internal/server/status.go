package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"ringmaster/api/web"
	"ringmaster/distributed/cluster"
	"ringmaster/internal/host"
	"ringmaster/node"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// statusAge is how old the reports of the ranks on the cluster page may be, so that the
// number of viewers does not matter to the ranks.
const statusAge = 500 * time.Millisecond

// clusterStatus is the web.Source of this server, from its start on.
type clusterStatus struct {
	node    *node.Node
	grouped bool
	serving atomic.Bool // the model is loaded
}

// Status implements web.Source.
func (c *clusterStatus) Status(ctx context.Context) web.Status {
	if !c.grouped {
		return c.alone()
	}
	leader := c.node.Cluster()
	if leader == nil {
		return web.Status{Phase: "loading", Reason: "the model file is being opened", Ranks: []web.Rank{}, Events: []web.Event{}}
	}
	s := leader.Status()
	out := web.Status{Phase: s.Phase, Reason: s.Reason, Epoch: s.Epoch, Ranks: make([]web.Rank, len(s.Ranks)),
		Transport: s.Transport.Kind, Topology: s.Transport.Topology, Notes: s.Transport.Notes}
	for r, x := range s.Ranks {
		out.Ranks[r] = web.Rank{Rank: r, State: string(x.State), Why: x.Why, For: x.For.Seconds(), Host: x.Hello.Host, Address: cmp.Or(x.Addr, x.Hello.Data),
			Backend: x.Hello.Kernels, Threads: x.Hello.Threads, Offered: x.Hello.Memory}
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, web.Event{Time: e.Time, Kind: string(e.Kind), Rank: e.Rank, Text: e.Text})
	}
	if c.serving.Load() {
		c.shares(&out, s)
		c.counts(ctx, &out)
	}
	if out.Events == nil {
		out.Events = []web.Event{}
	}
	return out
}

// alone returns the status of a model on this rank alone.
func (c *clusterStatus) alone() web.Status {
	out := web.Status{Phase: "loading", Reason: "the model is loading", Ranks: []web.Rank{{State: string(cluster.Forming)}}, Events: []web.Event{}}
	if !c.serving.Load() {
		return out
	}
	n := c.node
	r := &out.Ranks[0]
	name, _ := os.Hostname() // for people: the page does without
	*r = web.Rank{State: string(cluster.Member), Host: name, Backend: n.Kernels, Threads: n.Threads, Memory: host.ResidentBytes()}
	if mem, known := n.SystemMemory(); known {
		r.Offered = mem.Total
	}
	if m, ok := n.Model.(interface {
		LayerStats() []parallel.LayerStats
	}); ok {
		r.Layers = webLayers(m.LayerStats())
	}
	out.Phase, out.Reason, out.Transport = "running", "", "local"
	whole := shareOf(parallel.Part{Experts: parallel.Range{End: n.Sizes.Experts}, Heads: parallel.Range{End: n.Sizes.Heads},
		Vocabulary: parallel.Range{End: n.Sizes.Vocabulary}})
	out.Whole, r.Share = whole, &whole
	return out
}

// shares adds what each member has of the model.
func (c *clusterStatus) shares(out *web.Status, s cluster.Status) {
	p := c.node.Leader.Planner.Last().Settings.Placement
	if len(p) != len(s.Members) || len(p) == 0 {
		return // an epoch that is being planned
	}
	out.Whole = wholeOf(p)
	for i, rank := range s.Members {
		share := shareOf(p[i])
		out.Ranks[rank].Share = &share
	}
}

// wholeOf is what a placement divides.
func wholeOf(p parallel.Placement) web.Share {
	s := p.Sizes()
	return web.Share{Layers: [2]int{0, s.Layers}, Experts: [2]int{0, s.Experts}, Heads: [2]int{0, s.Heads}, Vocabulary: [2]int{0, s.Vocabulary}}
}

func shareOf(p parallel.Part) web.Share {
	copies := 0
	for _, s := range p.Copies {
		copies += s.Len()
	}
	return web.Share{Layers: [2]int{p.Layers.Start, p.Layers.End}, Experts: [2]int{p.Experts.Start, p.Experts.End}, Copies: copies / max(len(p.Copies), 1), Heads: [2]int{p.Heads.Start, p.Heads.End},
		Vocabulary: [2]int{p.Vocabulary.Start, p.Vocabulary.End}}
}

// counts adds the reports of the ranks, and the events that they show.
func (c *clusterStatus) counts(ctx context.Context, out *web.Status) {
	l := c.node.Leader
	reports := l.RecentReports(ctx, statusAge)
	members := 0
	for _, r := range reports {
		if r.Epoch > 0 {
			members++
		}
	}
	for i, r := range reports {
		if i >= len(out.Ranks) || r.Epoch == 0 || out.Ranks[i].Backend == "" {
			continue // no member, or gone since
		}
		x := &out.Ranks[i]
		x.Memory, x.Steps, x.Tokens, x.Busy = r.Memory, r.Steps, r.Tokens, r.Time.Seconds()
		x.Sent, x.Received, x.Layers = r.Group.Sent, r.Group.Received, webLayers(r.Layers)
		if routed := r.Total().Routed; i == 0 && routed.AllRows > 0 {
			rows, bytes := routed.Imbalance(members)
			out.Imbalance = &web.Imbalance{Rows: rows, Bytes: bytes}
		}
	}
	out.Recoveries, _ = l.Steps.Recoveries()
	for _, r := range l.Steps.Repeats() {
		out.Events = append(out.Events, repeated(r))
	}
	slices.SortStableFunc(out.Events, func(a, b web.Event) int { return a.Time.Compare(b.Time) })
}

// repeated returns the event for steps that ran again.
func repeated(r replica.Repeat) web.Event {
	e := web.Event{Time: r.First, Kind: "repeated", Rank: -1}
	steps := "1 step"
	if r.Steps > 1 {
		steps = fmt.Sprintf("%d steps within %v", r.Steps, r.Last.Sub(r.First).Round(time.Second))
	}
	switch r.Kind {
	case replica.InFloat32:
		e.Text = fmt.Sprintf("exchanges of %s repeated in float32, a value was beyond the range of float16: %d", steps, r.Exchanges)
	case replica.AfterLoss:
		e.Text = fmt.Sprintf("%s ran again that the end of an epoch had interrupted, %.1f s from interruption to end", steps, r.Took.Seconds())
		if r.Steps > 1 {
			e.Text += " in sum"
		}
	}
	return e
}

func webLayers(list []parallel.LayerStats) []web.Layer {
	out := make([]web.Layer, len(list))
	for i, l := range list {
		out[i] = web.Layer{Compute: l.Compute.Seconds(), Waiting: l.Waiting.Seconds(), Wire: l.Wire.Seconds(), Overflows: l.Overflows}
	}
	return out
}
