package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Policy says how the proxy chooses a group.
type Policy string

// The policies.
const (
	// Hash is packaging/scaling/haproxy.cfg: consistent hashing on the conversation with
	// bounded loads; requests without one take turns.
	Hash Policy = "hash"
	// LeastConn chooses the group with the fewest requests, among equals in turn.
	LeastConn Policy = "leastconn"
)

// Proxy is HAProxy.
type Proxy struct {
	Policy Policy
	// Bound is the highest load of a group for a new request, relative to the average
	// (hash-balance-factor / 100); 0: not bounded.
	Bound float64
	// Points are a group's points on the ring: 16 for each unit of a server's weight.
	Points int
	// Connections is maxconn: the most requests at once. As many may wait, and more are
	// refused. 0: not limited.
	Connections int
}

func (p *Proxy) check() error {
	switch {
	case p.Policy != Hash && p.Policy != LeastConn:
		return fmt.Errorf("policy %q, expected %s or %s", p.Policy, Hash, LeastConn)
	case p.Bound != 0 && !(p.Bound >= 1) || math.IsInf(p.Bound, 0):
		return fmt.Errorf("a bound of %v times the average load, expected 1 or more, or 0 for none", p.Bound)
	case p.Points < 1 || p.Points > 1<<16:
		return fmt.Errorf("%d points of a group on the ring, expected 1 to %d", p.Points, 1<<16)
	case p.Connections < 0:
		return fmt.Errorf("%d connections, expected 0 or more", p.Connections)
	}
	return nil
}

// point is a place of a group on the ring.
type point struct {
	at    uint64
	group *group
}

// proxy is the state of a Proxy.
type proxy struct {
	Proxy
	groups  []*group
	ring    []point // by place
	turn    int     // the group before the next one in turn
	inside  int     // current requests
	waiting []*request
}

func newProxy(p Proxy, groups []*group) *proxy {
	out := &proxy{Proxy: p, groups: groups, turn: len(groups) - 1}
	for _, g := range groups {
		for i := range p.Points {
			out.ring = append(out.ring, point{mix(uint64(g.index)<<20 | uint64(i)), g})
		}
	}
	slices.SortFunc(out.ring, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.group.index, b.group.index))
	})
	return out
}

// mix spreads numbers over 64 bits (the finalizer of SplitMix64; Steele, Lea and Flood,
// OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// admission is what the proxy does with a connection.
type admission uint8

const (
	entered admission = iota
	waits
	refused
)

// enter accepts a request, lets it wait for another one's end, or refuses it.
func (p *proxy) enter(r *request) admission {
	switch {
	case p.Connections == 0 || p.inside < p.Connections:
		p.inside++
		return entered
	case len(p.waiting) < p.Connections:
		p.waiting = append(p.waiting, r)
		return waits
	}
	return refused
}

// leave ends a request and returns the waiting one that takes its place, nil if none
// waits.
func (p *proxy) leave() *request {
	if len(p.waiting) == 0 {
		p.inside--
		return nil
	}
	next := p.waiting[0]
	p.waiting = p.waiting[1:]
	return next
}

// choose returns the group for a request of a conversation, nil if all are down.
func (p *proxy) choose(c *conversation) *group {
	live, load := 0, 0
	for _, g := range p.groups {
		if g.state != down {
			live++
			load += g.load
		}
	}
	switch {
	case live == 0:
		return nil
	case p.Policy == LeastConn:
		return p.least()
	case !c.keyed:
		return p.round()
	}
	slots := math.MaxInt
	if p.Bound > 0 {
		// HAProxy rounds both up: the slots of all groups, then those of each.
		all := int(math.Ceil(float64(load+1)*p.Bound - 1e-9))
		slots = max(1, (all+live-1)/live)
	}
	start, _ := slices.BinarySearchFunc(p.ring, c.key, func(a point, key uint64) int { return cmp.Compare(a.at, key) })
	for i := range p.ring {
		g := p.ring[(start+i)%len(p.ring)].group
		if g.state != down && g.load < slots {
			return g
		}
	}
	return p.round()
}

// round returns the next group in turn.
func (p *proxy) round() *group {
	for {
		p.turn = (p.turn + 1) % len(p.groups)
		if g := p.groups[p.turn]; g.state != down {
			return g
		}
	}
}

// least returns the group with the least load, among equals the next in turn.
func (p *proxy) least() (best *group) {
	n := len(p.groups)
	for i := range n {
		g := p.groups[(p.turn+1+i)%n]
		if g.state != down && (best == nil || g.load < best.load) {
			best = g
		}
	}
	p.turn = best.index
	return best
}
