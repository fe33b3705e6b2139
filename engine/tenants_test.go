package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// crowd drives a scheduler with tenants that always have requests.
type crowd struct {
	s       *scheduler
	random  *rand.Rand
	tenants []crowdTenant
	answer  map[requestID]int // tokens still to generate
}

// crowdTenant keeps so many requests in the scheduler, as far as they fit.
type crowdTenant struct {
	name             string
	requests         int
	weight           int
	prompt, answer   int // most tokens of each
	served, since    int // tokens in all, and since it could use more than it got
	longest, waiting int // most steps without a token while it had a request, and the current number
	refused          int
}

func (c *crowd) find(name string) *crowdTenant {
	for i := range c.tenants {
		if c.tenants[i].name == name {
			return &c.tenants[i]
		}
	}
	return nil
}

// step adds requests and runs a step.
func (c *crowd) step(t *testing.T) {
	s := c.s
	count := map[string]int{}
	for _, list := range [][]*task{s.queue, s.active} {
		for _, x := range list {
			count[x.tenant]++
		}
	}
	for i := range c.tenants {
		w := &c.tenants[i]
		for range w.requests - count[w.name] {
			if s.roomFor(w.name, 1) != hasRoom {
				w.refused++
				break
			}
			prompt := make([]int32, 1+c.random.IntN(w.prompt))
			for j := range prompt {
				prompt[j] = int32(c.random.IntN(3)) // some share a prefix
			}
			answer := c.random.IntN(w.answer + 1)
			s.setWeight(w.name, w.weight)
			c.answer[s.add(w.name, prompt, nil, false, w.name, hints{}, answer+1, 0)] = answer
		}
	}
	step, ok := s.plan()
	require.True(t, ok)
	total := 0
	for _, e := range step.Entries {
		total += len(e.Tokens)
	}
	require.LessOrEqual(t, total, s.tokenBudget)
	require.LessOrEqual(t, len(step.Entries), s.limits.active)
	if c.random.IntN(10) == 0 {
		s.abort()
		return
	}
	parts, _ := s.commit()
	require.LessOrEqual(t, len(s.active)+len(s.prefixCache), s.limits.active+s.cacheSize, "sequences with a KV cache")
	for i := range c.tenants {
		c.tenants[i].waiting++
	}
	for _, p := range parts {
		w := c.find(p.task.tenant)
		w.served += p.n
		w.since += p.n
		w.waiting = 0
	}
	short := map[string]bool{}
	for _, x := range s.active {
		short[x.tenant] = short[x.tenant] || len(x.todo) > 0
	}
	for i := range c.tenants {
		w := &c.tenants[i]
		w.longest = max(w.longest, w.waiting)
		if !short[w.name] { // compared again once all can use more
			for j := range c.tenants {
				c.tenants[j].since = 0
			}
		}
	}
	for _, p := range parts {
		switch id := p.task.id; {
		case !p.last:
		case c.answer[id] == 0:
			s.finish(id)
			delete(c.answer, id)
		default:
			c.answer[id]--
			s.next(id, 1)
		}
	}
}

// TestTenantsShareTheTokens: as long as all tenants could use more than they get, their
// weighted service differs by at most a step, however many requests each has.
func TestTenantsShareTheTokens(t *testing.T) {
	for seed := range uint64(8) {
		c := &crowd{
			s: &scheduler{
				limits: limits{active: 8, queue: 16, tokenBudget: 40, prefillChunk: 32, cacheSize: 3, rewind: 1, leastShared: leastShared},
			},
			random: rand.New(rand.NewPCG(seed, 3)), answer: map[requestID]int{},
			tenants: []crowdTenant{
				{name: "many", requests: 30, prompt: 300, answer: 30},
				{name: "two", requests: 2, weight: 2, prompt: 900, answer: 3},
				{name: "long", requests: 1, prompt: 5000, answer: 0},
			},
		}
		compared := 0
		for range 3000 {
			c.step(t)
			for _, a := range c.tenants {
				for _, b := range c.tenants {
					difference := float64(a.since)/float64(c.s.weight(a.name)) - float64(b.since)/float64(c.s.weight(b.name))
					require.LessOrEqual(t, difference, float64(2*c.s.tokenBudget), "seed %d, %s and %s", seed, a.name, b.name)
				}
				compared = max(compared, a.since)
			}
		}
		require.Greater(t, compared, 50*c.s.tokenBudget, "the tenants are compared over many steps")
		require.Positive(t, c.find("many").refused)
		require.Len(t, c.s.virtual, 3)
		require.Equal(t, map[string]int{"two": 2}, c.s.weights)
	}
}

// TestNoTenantStarves: while one tenant keeps every place and its share of the queue
// filled with endless answers, each of the others is admitted at once and keeps running.
func TestNoTenantStarves(t *testing.T) {
	for seed := range uint64(10) {
		c := &crowd{
			s:      &scheduler{limits: limits{active: 4, queue: 8, tokenBudget: 16, prefillChunk: 8, cacheSize: 6, rewind: 1, leastShared: leastShared}},
			random: rand.New(rand.NewPCG(seed, 4)), answer: map[requestID]int{},
			tenants: []crowdTenant{{name: "greedy", requests: 20, prompt: 50, answer: 1 << 40}},
		}
		for range 200 {
			c.step(t)
		}
		require.Len(t, c.s.active, 4)
		for i := range 5 {
			c.tenants = append(c.tenants, crowdTenant{name: fmt.Sprint("other ", i), requests: 1, prompt: 40, answer: 20})
		}
		for range 2000 {
			c.step(t)
		}
		for _, w := range c.tenants[1:] {
			require.Zero(t, w.refused, "seed %d, %s", seed, w.name)
			require.LessOrEqual(t, w.longest, 2*c.s.tokenBudget, "seed %d, %s: steps without a token", seed, w.name)
			require.Greater(t, w.served, 1000, "seed %d, %s", seed, w.name)
		}
	}
}
