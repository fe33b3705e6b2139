package engine

import "slices"

// Fair shares among tenants. A tenant is all requests with the same Request.Tenant: those
// of one API key. Requests without one are one tenant.
//
// Tokens are shared by weighted fair queueing. Each tenant has a virtual time, which
// advances by 1/weight with each token that a step runs for it, of a prompt or of an
// answer. A step gives its prefill budget to the tenants with the least virtual time
// (fillBudget), so that those that could use more than they get advance together. A
// tenant that needs no more than it gets, or has been away, is moved forward to the least
// of the others, because unused service is not owed. This is start-time fair queueing
// (Goyal, Vin and Cheng, SIGCOMM 1996), with all packets of a step served at once.
//
// Places are shared by their number: a free place goes to the waiting tenant that has the
// fewest for its weight. A tenant that has none gets one even when limits.active are
// taken, as long as the prefix cache can give up an entry for it; a step then leaves out
// some sequences in turn. So long answers of one tenant do not make another wait for
// their end.
//
// The queue is shared by a dynamic threshold (Choudhury and Hahne, IEEE/ACM Transactions
// on Networking 6(2), 1998, with alpha = 1): a tenant may have as many waiting requests
// as there are free places in the queue. One that is alone gets half of the queue, n of
// them 1/(n+1) each, and some places are always free for another. The same holds for the
// memory of KV caches if it has a budget: beyond its first request, a tenant may hold as
// much as is free.

// tokenUnit is the virtual time of one token of a tenant of weight 1. It is large so that
// its quotient by a weight of at most MaxWeight is exact to 0.1%.
const tokenUnit = 1 << 20

// MaxWeight is the greatest weight of a tenant.
const MaxWeight = 1000

// tenants is the part of the scheduler's state that concerns tenants.
type tenants struct {
	weights map[string]int    // of tenants with a request; 1 for unlisted ones
	start   uint64            // virtual time at which a tenant starts
	virtual map[string]uint64 // of each tenant with a request

	held   int            // places reserved by hold
	holder map[string]int // the same by tenant, for tenants that have some
}

// hold reserves n more places for requests of a tenant that are still being made; a
// negative n returns them.
func (s *tenants) hold(tenant string, n int) {
	if s.holder == nil {
		s.holder = map[string]int{}
	}
	s.held += n
	if s.holder[tenant] += n; s.holder[tenant] == 0 {
		delete(s.holder, tenant)
	}
}

// join starts the virtual time of a tenant that has had no request.
func (s *tenants) join(tenant string) {
	if s.virtual == nil {
		s.virtual = map[string]uint64{}
	}
	if _, ok := s.virtual[tenant]; !ok {
		s.virtual[tenant] = s.start
	}
}

// setWeight sets the weight of a tenant, 0 or 1 for the standard one.
func (s *tenants) setWeight(tenant string, weight int) {
	if weight <= 1 {
		delete(s.weights, tenant)
		return
	}
	if s.weights == nil {
		s.weights = map[string]int{}
	}
	s.weights[tenant] = weight
}

func (s *tenants) weight(tenant string) int {
	if w := s.weights[tenant]; w > 0 {
		return w
	}
	return 1
}

// cost returns the virtual time of a token.
func (s *tenants) cost(tenant string) uint64 { return tokenUnit / uint64(s.weight(tenant)) }

// charge adds n tokens to what a tenant has been served.
func (s *tenants) charge(tenant string, n int) { s.virtual[tenant] += uint64(n) * s.cost(tenant) }

// settle is called after the tokens of a step have been charged. It moves the tenants
// that the step has served completely forward to those that could have used more, and
// forgets the tenants that have left.
func (s *scheduler) settle() {
	short := map[string]bool{} // tenants that could have used more
	present := map[string]bool{}
	for _, t := range s.active {
		present[t.tenant] = true
		short[t.tenant] = short[t.tenant] || len(t.todo) > 0
	}
	for _, t := range s.queue {
		present[t.tenant] = true
	}
	least, most := ^uint64(0), s.start
	for tenant, v := range s.virtual {
		if most = max(most, v); short[tenant] {
			least = min(least, v)
		}
	}
	s.start = max(s.start, min(least, most))
	for tenant, v := range s.virtual {
		switch {
		case !present[tenant]:
			delete(s.virtual, tenant)
			delete(s.weights, tenant)
		case !short[tenant]:
			s.virtual[tenant] = max(v, s.start)
		}
	}
}

// group is the tasks of one tenant among those that share something.
type group struct {
	tasks   []*task
	demand  int // tokens, if all are prompts
	taken   int // the tasks or tokens given to it so far
	weight  int
	cost    uint64
	virtual uint64
}

// byTenant groups tasks, in the order of the first task of each tenant. ahead has the
// tokens by which a tenant's virtual time is ahead of what has been charged.
func (s *scheduler) byTenant(tasks []*task, ahead map[string]int) []*group {
	var groups []*group
	of := map[string]*group{}
	for _, t := range tasks {
		g := of[t.tenant]
		if g == nil {
			cost := s.cost(t.tenant)
			g = &group{weight: s.weight(t.tenant), cost: cost, virtual: s.virtual[t.tenant] + uint64(ahead[t.tenant])*cost}
			of[t.tenant] = g
			groups = append(groups, g)
		}
		g.tasks = append(g.tasks, t)
		g.demand += t.demand()
	}
	return groups
}

// before reports whether the next place is for g rather than for h: it has fewer for its
// weight, or as many and less virtual time.
func (g *group) before(h *group) bool {
	if a, b := g.taken*h.weight, h.taken*g.weight; a != b {
		return a < b
	}
	return g.virtual < h.virtual
}

// nextWaiting returns the waiting request that gets the next place, nil if there is no
// place for any. It takes a tenant's oldest request that does not wait for a prefill.
func (s *scheduler) nextWaiting() *task {
	if len(s.queue) == 0 || len(s.active) >= s.limits.active+s.beyond() {
		return nil
	}
	running := map[string]int{}
	for _, t := range s.active {
		running[t.tenant]++
	}
	var next *group
	ready := slices.DeleteFunc(slices.Clone(s.queue), func(t *task) bool { return t.waits })
	for _, g := range s.byTenant(ready, nil) {
		g.taken = running[g.tasks[0].tenant]
		if g.taken > 0 && (len(s.active) >= s.limits.active || s.leavesTooLittle(g.tasks[0])) {
			continue
		}
		if next == nil || g.before(next) {
			next = g
		}
	}
	if next == nil {
		return nil
	}
	return next.tasks[0]
}

// leavesTooLittle reports whether a waiting request of a tenant that has others running
// would let it hold more memory than is free, so that another tenant's first request
// would have to wait for the end of its answers.
func (s *scheduler) leavesTooLittle(t *task) bool {
	if !s.mem.limited() || t.tenant == "" {
		return false
	}
	var own, all int64
	for _, a := range s.active {
		bytes := s.mem.charge(a)
		all += bytes
		if a.tenant == t.tenant {
			own += bytes
		}
	}
	return own+s.mem.size(t.reserve)+t.beside > s.mem.budget-all
}

// beyond returns how many requests may run beyond limits.active.
func (l *limits) beyond() int { return min(l.cacheSize, cachedContexts) }

// extra returns how many requests run beyond limits.active.
func (s *scheduler) extra() int { return max(0, len(s.active)-s.limits.active) }

// room says why n more requests of a tenant may not be added.
type room uint8

const (
	hasRoom   room = iota
	queueFull      // the requests of all tenants fill it
	shareFull      // the tenant has its share, and the rest is for others
)

// roomFor returns whether n more requests of a tenant may be added. Requests that are
// still being made count as waiting, and those that the next step will admit do not. A
// tenant without any request has room for one as long as there is a place beyond
// limits.active.
func (s *scheduler) roomFor(tenant string, n int) room {
	places := max(0, s.limits.active-len(s.active))
	left := s.limits.queue + places - len(s.queue) - s.held
	ofTenant := func(t *task) bool { return t.tenant == tenant }
	newcomer := s.holder[tenant] == 0 && !slices.ContainsFunc(s.active, ofTenant) && !slices.ContainsFunc(s.queue, ofTenant)
	if newcomer && n == 1 && left+s.beyond()-s.extra() > 0 {
		return hasRoom
	}
	if n > left {
		return queueFull
	}
	waiting := n + s.holder[tenant] - places
	for _, t := range s.queue {
		if ofTenant(t) {
			waiting++
		}
	}
	if tenant != "" && waiting > left-n+1 {
		return shareFull
	}
	return hasRoom
}

// most returns how many requests a tenant can have at the same time.
func (l *limits) most(tenant string) int {
	if tenant == "" {
		return l.active + l.queue
	}
	return l.active + (l.queue+1)/2
}
