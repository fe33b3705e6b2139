package constraint

import (
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Condition is a regular expression that a text must match, as a whole or in any part.
// Unlike those of Regexp it may have lookaheads.
type Condition struct {
	Pattern string
	Whole   bool
	Not     bool // the text must not match; only for Intersect
	Trusted bool // its length is bounded elsewhere
}

// Matches reports whether a text satisfies a condition. Its errors may wrap the budget's.
func (c Condition) Matches(text string, b *Budget) (bool, error) {
	m, err := c.machine(b)
	if err != nil {
		return false, err
	}
	at := m.start(true)
	for i, r := range text {
		at = m.step(at, r, -1-i) // each character is a class of its own
		if m.err != nil {
			return false, m.err
		}
	}
	return m.states[at].ends, m.err
}

func (c Condition) machine(b *Budget) (*machine, error) {
	if len(c.Pattern) > maxPattern && !c.Trusted {
		return nil, fmt.Errorf("the regular expression has %d bytes; at most %d are allowed", len(c.Pattern), maxPattern)
	}
	m, err := newMachine(c.Pattern, c.Whole, c.Whole, 0, b)
	if err == nil && m.err != nil {
		err = m.err
	}
	return m, err
}

// Intersect returns the texts of low to high characters (high -1: no limit) that satisfy
// all conditions. Its errors may wrap the budget's.
func Intersect(conditions []Condition, low, high int, char Characters, b *Budget) (*Expr, error) {
	p := &product{budget: b, ids: map[string]int{}}
	for _, c := range conditions {
		m, err := c.machine(b)
		if err != nil {
			return nil, err
		}
		p.machines, p.not = append(p.machines, m), append(p.not, c.Not)
	}
	if err := p.findClasses(); err != nil {
		return nil, err
	}
	if err := p.build(); err != nil {
		return nil, err
	}
	if !p.states[0].live {
		return Never(), nil
	}
	if err := p.connect(char); err != nil {
		return nil, err
	}
	return p.bounded(low, high)
}

// product is the automaton of several machines side by side.
type product struct {
	machines []*machine
	not      []bool   // [machines] its texts are excluded
	classes  [][]rune // ranges of characters
	budget   *Budget

	ids    map[string]int
	states []productState
}

type productState struct {
	at    []int // [machines]
	ends  bool
	live  bool   // an end can be reached
	next  []int  // [classes] -1: none
	edges []edge // to live states
}

// edge is some characters that lead to a state.
type edge struct {
	char *Expr
	to   int
}

// findClasses divides the characters into classes that no instruction tells apart.
func (p *product) findClasses() error {
	var list []*syntax.Inst
	cuts := []rune{0, utf8.MaxRune + 1, 0xD800, 0xE000} // surrogates are no characters
	var collect func(m *machine)
	collect = func(m *machine) {
		for i := range m.prog.Inst {
			in := &m.prog.Inst[i]
			switch in.Op {
			case syntax.InstRune, syntax.InstRune1:
				if len(in.Rune) == 1 {
					cuts = append(cuts, in.Rune[0], in.Rune[0]+1)
					if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
						for f := unicode.SimpleFold(in.Rune[0]); f != in.Rune[0]; f = unicode.SimpleFold(f) {
							cuts = append(cuts, f, f+1)
						}
					}
				}
				for k := 0; k+1 < len(in.Rune); k += 2 {
					cuts = append(cuts, in.Rune[k], in.Rune[k+1]+1)
				}
			case syntax.InstRuneAnyNotNL:
				cuts = append(cuts, '\n', '\n'+1)
			default:
				continue
			}
			list = append(list, in)
		}
		for _, look := range m.looks {
			collect(look)
		}
	}
	for _, m := range p.machines {
		collect(m)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	// An instruction with many ranges is rare, so most have the same answer for most cuts.
	if !p.budget.Spend(len(cuts) * (1 + len(list)/16)) {
		return p.budget.Err()
	}
	at := map[string]int{}
	for k := 0; k+1 < len(cuts); k++ {
		low := cuts[k]
		if low >= 0xD800 && low < 0xE000 || low < 0 || low > utf8.MaxRune {
			continue
		}
		key := make([]byte, len(list)/8+1)
		for n, in := range list {
			if matchesRune(in, low) {
				key[n/8] |= 1 << (n % 8)
			}
		}
		n, ok := at[string(key)]
		if !ok {
			n = len(p.classes)
			at[string(key)] = n
			p.classes = append(p.classes, nil)
		}
		p.classes[n] = append(p.classes[n], low, cuts[k+1]-1)
	}
	return nil
}

// state returns the state of the machines; -1: it cannot lead to an end. The first one may
// have no threads and get some later, because a machine that is not anchored begins again
// after each character, where ^ in a lookahead no longer matches.
func (p *product) state(at []int, first bool) int {
	ends := true
	var key []byte
	for i, m := range p.machines {
		s := &m.states[at[i]]
		if p.not[i] && s.matched || !p.not[i] && !first && len(s.threads) == 0 && !s.ends {
			return -1
		}
		ends = ends && s.ends != p.not[i]
		key = binary.AppendUvarint(key, uint64(at[i]))
	}
	id, ok := p.ids[string(key)]
	if !ok {
		id = len(p.states)
		p.ids[string(key)] = id
		p.states = append(p.states, productState{at: at, ends: ends, live: ends})
	}
	return id
}

// build finds all states and which lead to an end.
func (p *product) build() error {
	at := make([]int, len(p.machines))
	for i, m := range p.machines {
		at[i] = m.start(true)
		if m.err != nil {
			return m.err
		}
	}
	if p.state(at, true) < 0 {
		p.states = append(p.states, productState{}) // nothing matches
		return nil
	}
	for i := 0; i < len(p.states); i++ {
		if len(p.states) > maxProduct {
			return errManyStates
		}
		next := make([]int, len(p.classes))
		for class, ranges := range p.classes {
			if !p.budget.Spend(1 + len(p.machines)) {
				return p.budget.Err()
			}
			to := make([]int, len(at))
			for k, m := range p.machines {
				to[k] = m.step(p.states[i].at[k], ranges[0], class)
				if m.err != nil {
					return m.err
				}
			}
			next[class] = p.state(to, false)
		}
		p.states[i].next = next
	}
	spreadLive(len(p.states), func(i int) ([]int, *bool) { return p.states[i].next, &p.states[i].live })
	return nil
}

// spreadLive marks the states of an automaton that lead to a live one. of returns where a
// state leads (-1: nowhere), and its mark.
func spreadLive(n int, of func(i int) (next []int, live *bool)) {
	before := make([][]int, n)
	var found []int
	for i := range n {
		next, live := of(i)
		for _, to := range next {
			if to >= 0 {
				before[to] = append(before[to], i)
			}
		}
		if *live {
			found = append(found, i)
		}
	}
	for len(found) > 0 {
		to := found[len(found)-1]
		found = found[:len(found)-1]
		for _, i := range before[to] {
			if _, live := of(i); !*live {
				*live = true
				found = append(found, i)
			}
		}
	}
}

// connect makes the edges between live states.
func (p *product) connect(char Characters) error {
	made := map[string]*Expr{}
	for i := range p.states {
		s := &p.states[i]
		if !s.live {
			continue
		}
		var order []int
		sets := map[int][]int{} // the classes that lead to a state
		for class, to := range s.next {
			if to >= 0 && p.states[to].live {
				if sets[to] == nil {
					order = append(order, to)
				}
				sets[to] = append(sets[to], class)
			}
		}
		for _, to := range order {
			key := fmt.Sprint(sets[to])
			e := made[key]
			if e == nil {
				e = char(p.ranges(sets[to])...)
				if !p.budget.Spend(e.Size()) {
					return p.budget.Err()
				}
				if e.Size() > 4 && !e.IsNever() {
					e = Shared("a class of characters", e)
				}
				made[key] = e
			}
			if !e.IsNever() {
				s.edges = append(s.edges, edge{e, to})
			}
		}
	}
	return nil
}

// ranges returns the characters of some classes as sorted ranges that do not touch.
func (p *product) ranges(classes []int) []rune {
	type pair struct{ low, high rune }
	var list []pair
	for _, c := range classes {
		for k := 0; k+1 < len(p.classes[c]); k += 2 {
			list = append(list, pair{p.classes[c][k], p.classes[c][k+1]})
		}
	}
	slices.SortFunc(list, func(a, b pair) int { return int(a.low - b.low) })
	var out []rune
	for _, r := range list {
		if n := len(out); n > 0 && out[n-1]+1 == r.low {
			out[n-1] = r.high
			continue
		}
		out = append(out, r.low, r.high)
	}
	return out
}
