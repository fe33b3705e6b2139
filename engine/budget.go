package engine

import (
	"cmp"
	"slices"
)

// fillBudget divides the token budget of a step. Each decoding sequence runs its one
// token, and drafts if the budget has room for them in the end. The prompts share the rest, at most prefillChunk, and beside sequences that
// decode at most half of a step and no more than the target of time allows (pace.go). It
// is divided first among the tenants, so that their virtual times become equal
// (tenants.go), then among the prompts of each tenant in equal parts; what a short prompt
// does not need goes to the longer ones. If there are more sequences than a step can have, the tenants take turns, and
// within a tenant the sequence that waited longest goes first.
func (s *scheduler) fillBudget() {
	var order []*task
	for _, t := range s.active {
		if !t.cancelled && len(t.todo) > 0 && !s.mem.short[t] {
			order = append(order, t)
		}
	}
	slices.SortStableFunc(order, func(a, b *task) int { return cmp.Compare(a.served, b.served) })
	order = s.takeTurns(order, min(s.tokenBudget, s.limits.active))

	var prompts []*task
	decoding := map[string]int{} // sequences, by tenant
	for _, t := range order {
		if t.decode {
			decoding[t.tenant]++
		} else {
			prompts = append(prompts, t)
		}
	}
	most := min(s.prefillChunk, s.tokenBudget-(len(order)-len(prompts)))
	// Those that wait for their token or their turn count too.
	if slices.ContainsFunc(s.active, func(t *task) bool { return t.decode && !t.cancelled }) {
		most = s.pace.bound(min(most, max(1, s.tokenBudget/2)))
	}
	chunk := s.divide(prompts, most, decoding)

	rows, left := 0, s.tokenBudget
	for _, t := range order {
		n := chunk[t]
		if t.decode {
			n = 1
		} else {
			n = s.reach(t, n)
		}
		p := part{task: t, pos: t.pos, n: n, prompt: !t.decode, last: n == len(t.todo)}
		switch {
		case p.prompt && t.allRows:
			p.n = min(p.n, maxPromptRows-rows)
			p.last = p.n == len(t.todo)
			p.rows = p.n
			rows += p.n
		case p.last:
			p.rows = 1
		}
		if p.prompt {
			p.until = s.until(t)
		}
		p.tokens, p.kept = t.todo[:p.n:p.n], p.n
		if p.n > 0 && s.grow(p) {
			s.parts = append(s.parts, p)
			left -= p.n
		}
	}
	s.addDrafts(left)
}

// takeTurns chooses n of the tasks, which are in the order of their turns. The next place
// goes to the tenant that has the fewest for its weight; among equals, to the one with
// the least virtual time.
func (s *scheduler) takeTurns(order []*task, n int) []*task {
	if n >= len(order) {
		return order
	}
	groups := s.byTenant(order, nil)
	chosen := make([]*task, 0, n)
	for len(chosen) < n {
		var next *group
		for _, g := range groups {
			if len(g.tasks) > g.taken && (next == nil || g.before(next)) {
				next = g
			}
		}
		chosen = append(chosen, next.tasks[next.taken])
		next.taken++
	}
	return chosen
}

// divide returns each prompt's part of budget tokens; the prompts are in the order of
// their turns. decoding has the tokens that each tenant decodes in the step.
func (s *scheduler) divide(prompts []*task, budget int, decoding map[string]int) map[*task]int {
	groups := s.byTenant(prompts, decoding)
	for ; budget > 0; budget-- {
		var next *group
		for _, g := range groups {
			if g.taken < g.demand && (next == nil || g.virtual < next.virtual) {
				next = g
			}
		}
		if next == nil {
			break
		}
		next.taken++
		next.virtual += next.cost
	}
	chunk := make(map[*task]int, len(prompts))
	for _, g := range groups {
		// Shortest first, so that what a prompt leaves unused can still be divided among
		// the longer ones.
		tasks, left := g.tasks[:min(len(g.tasks), g.taken)], g.taken
		slices.SortStableFunc(tasks, func(a, b *task) int { return cmp.Compare(a.demand(), b.demand()) })
		for i, t := range tasks {
			chunk[t] = min(t.demand(), left/(len(tasks)-i))
			left -= chunk[t]
		}
	}
	return chunk
}

// demand returns how many tokens of its prompt t could run in one step.
func (t *task) demand() int {
	if t.allRows {
		return min(len(t.todo), maxPromptRows)
	}
	return len(t.todo)
}
