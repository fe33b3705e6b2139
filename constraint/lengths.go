package constraint

import "errors"

// maxEdges bounds the edges of an automaton that counts characters.
const maxEdges = 1 << 16

// errLength: the bounds of a length take too many states.
var errLength = errors.New("so long a length takes too many states")

// bounded returns the grammar of the automaton for texts of low to high characters.
func (p *product) bounded(low, high int) (*Expr, error) {
	shortest, longest := p.lengths(func(int) bool { return false })
	if low <= shortest {
		low = 0
	}
	if longest >= 0 && (high < 0 || longest <= high) {
		high = -1
	}
	n := &counted{product: p, low: low, high: high, ids: map[[2]int]int{}}
	if low > 0 || high >= 0 {
		// States that lead nowhere else count by a repetition, so only the paths before them
		// take states.
		most := high
		if high < 0 {
			most = low
		}
		if _, before := p.lengths(p.tail); before >= 0 {
			most = min(most, before+1)
		}
		edges := 0
		for i := range p.states {
			edges += len(p.states[i].edges)
		}
		if edges*most > maxEdges {
			return nil, errLength
		}
	}
	return n.expr()
}

// tail reports whether a state leads only to itself and a text may end there.
func (p *product) tail(i int) bool {
	s := &p.states[i]
	return s.ends && (len(s.edges) == 0 || len(s.edges) == 1 && s.edges[0].to == i)
}

// lengths returns the length of the shortest text, and that of the longest path from the
// start that passes no state of a kind; -1: without end.
func (p *product) lengths(skip func(int) bool) (shortest, longest int) {
	const (
		unseen = -1
		open   = -2
	)
	shortest = -1
	depth := map[int]int{0: 0}
	queue := []int{0}
	for len(queue) > 0 && shortest < 0 {
		at := queue[0]
		queue = queue[1:]
		if p.states[at].ends {
			shortest = depth[at]
		}
		for _, e := range p.states[at].edges {
			if _, ok := depth[e.to]; !ok {
				depth[e.to] = depth[at] + 1
				queue = append(queue, e.to)
			}
		}
	}
	// The longest path from each state, found from the ends.
	far := make([]int, len(p.states))
	for i := range far {
		far[i] = unseen
	}
	type visit struct{ at, edge int }
	stack := []visit{{0, 0}}
	far[0] = open
	if skip(0) {
		return shortest, 0
	}
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		edges := p.states[v.at].edges
		if v.edge == len(edges) {
			best := 0
			for _, e := range edges {
				best = max(best, far[e.to]+1)
			}
			far[v.at] = best
			stack = stack[:len(stack)-1]
			continue
		}
		to := edges[v.edge].to
		v.edge++
		switch {
		case skip(to):
			far[to] = 0
		case far[to] == open:
			return shortest, -1
		case far[to] == unseen:
			far[to] = open
			stack = append(stack, visit{to, 0})
		}
	}
	return shortest, far[0]
}

// counted is a product with a count of the characters.
type counted struct {
	*product
	low, high int // high -1: no limit

	ids    map[[2]int]int
	states []countedState
}

type countedState struct {
	at, count int
	ends      bool
	live      bool
	to        []int // [edges] -1: beyond the limit
}

func (c *counted) add(at, count int) int {
	if c.high < 0 {
		count = min(count, c.low)
	}
	key := [2]int{at, count}
	id, ok := c.ids[key]
	if !ok {
		id = len(c.states)
		c.ids[key] = id
		s := countedState{at: at, count: count, ends: c.product.states[at].ends && count >= c.low}
		s.live = s.ends || c.repeats(at)
		c.states = append(c.states, s)
	}
	return id
}

// repeats reports whether a repetition counts the characters of a state.
func (c *counted) repeats(at int) bool {
	return (c.low > 0 || c.high >= 0) && c.tail(at) && len(c.product.states[at].edges) == 1
}

// expr returns the grammar: a rule for each state that leads to an end.
func (c *counted) expr() (*Expr, error) {
	if c.high >= 0 && c.low > c.high {
		return Never(), nil
	}
	c.add(0, 0)
	for i := 0; i < len(c.states); i++ {
		s := c.states[i]
		if c.repeats(s.at) {
			continue
		}
		edges := c.product.states[s.at].edges
		if !c.budget.Spend(1 + len(edges)) {
			return nil, c.budget.Err()
		}
		s.to = make([]int, len(edges))
		for k, e := range edges {
			s.to[k] = -1
			if c.high < 0 || s.count < c.high {
				s.to[k] = c.add(e.to, s.count+1)
			}
		}
		c.states[i].to = s.to
	}
	spreadLive(len(c.states), func(i int) ([]int, *bool) { return c.states[i].to, &c.states[i].live })
	if !c.states[0].live {
		return Never(), nil
	}
	return c.rules()
}

func (c *counted) rules() (*Expr, error) {
	rules := make([]*Rule, len(c.states))
	for i := range rules {
		rules[i] = &Rule{Name: "a regular expression"}
	}
	for i := range c.states {
		s := &c.states[i]
		if !s.live {
			continue
		}
		edges := c.product.states[s.at].edges
		if c.repeats(s.at) {
			most := -1
			if c.high >= 0 {
				most = c.high - s.count
			}
			rules[i].Body = Repeat(edges[0].char, max(0, c.low-s.count), most)
			continue
		}
		var out []*Expr
		if s.ends {
			out = append(out, Empty())
		}
		for k, to := range s.to {
			if to >= 0 && c.states[to].live {
				out = append(out, Sequence(edges[k].char, Use(rules[to])))
			}
		}
		if !c.budget.Spend(4 * len(out)) {
			return nil, c.budget.Err()
		}
		rules[i].Body = Choice(out...)
	}
	return Use(rules[0]), nil
}
