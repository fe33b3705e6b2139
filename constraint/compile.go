package constraint

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Limits of a grammar.
const (
	maxNodes = 1 << 19 // of the network
	maxDepth = 256     // nesting of rules and repetitions while matching
)

// Errors of Compile.
var (
	// ErrTooLarge is wrapped by the error for a grammar beyond its limits.
	ErrTooLarge = errors.New("the grammar is too large")
	// ErrNothing: no text matches, however long it is.
	ErrNothing = errors.New("nothing can satisfy it")
)

// node is a node of the network. Edges point to nodes before or after it by their index.
type node struct {
	kind     kind
	dead     bool  // no text leads from here to the end of the rule, or of the grammar
	next     int32 // of bytes, a token, a call or a repetition
	arg      int32 // the set, the token, or the first node of the rule or of the repeated part
	min, max int32 // bounds of a repetition, max -1: none; edges of a split
}

type kind uint8

const (
	nodeBytes kind = iota
	nodeToken
	nodeSplit
	nodeCall   // arg, then next
	nodeRepeat // arg from min to max times, then next
	nodeReturn // from a call or a repetition
	nodeFinal  // the end of the grammar
)

// Grammar is a compiled grammar. It is safe for concurrent use.
type Grammar struct {
	nodes []node
	edges []int32 // of the splits
	sets  []Set
	start int32
	cache cache
}

// Bytes returns the most memory that a grammar takes, with the states and masks that it
// keeps.
func (g *Grammar) Bytes() int64 {
	return int64(cap(g.nodes))*int64(unsafe.Sizeof(node{})) + 4*int64(cap(g.edges)) + int64(cap(g.sets))*int64(unsafe.Sizeof(Set{})) + maxKept
}

// split returns the nodes that may follow a split.
func (g *Grammar) split(n *node) []int32 { return g.edges[n.min:n.max] }

// Compile makes a grammar of an expression for a vocabulary. Its errors wrap ErrTooLarge,
// ErrNothing or the budget's, or name the rule that refers to itself before it matches
// anything.
func Compile(e *Expr, v *Vocabulary, b *Budget) (*Grammar, error) {
	c := &compiler{rules: map[*Rule]int32{}, setAt: map[Set]int32{}, grammar: &Grammar{}, budget: b}
	final := c.add(node{kind: nodeFinal})
	start := c.expr(e, final)
	for len(c.pending) > 0 && c.err == nil { // the bodies of rules, which may contain more rules
		r := c.pending[0]
		c.pending = c.pending[1:]
		c.lead(c.rules[r], c.expr(r.Body, c.add(node{kind: nodeReturn})))
	}
	// The checks below visit each node and each edge a few times.
	if c.err == nil && !b.Spend((len(c.grammar.nodes)+len(c.grammar.edges))/2) {
		c.err = b.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	g := c.grammar
	g.start = start
	if err := g.checkRecursion(c.rules); err != nil {
		return nil, err
	}
	for i, leads := range g.reach(true) {
		g.nodes[i].dead = !leads
	}
	if g.nodes[start].dead {
		return nil, ErrNothing
	}
	g.nodes, g.edges, g.sets = slices.Clip(g.nodes), slices.Clip(g.edges), slices.Clip(g.sets)
	g.cache.init(g, v)
	return g, nil
}

// compiler builds the network backwards: expr returns the node at which an expression
// begins that continues at next.
type compiler struct {
	grammar *Grammar
	rules   map[*Rule]int32
	setAt   map[Set]int32 // index in the grammar's sets
	pending []*Rule
	budget  *Budget
	err     error
}

func (c *compiler) add(n node) int32 {
	if c.err == nil && len(c.grammar.nodes) >= maxNodes {
		c.err = fmt.Errorf("%w: it takes more than %d nodes", ErrTooLarge, maxNodes)
	}
	if c.err == nil && !c.budget.Spend(1) {
		c.err = c.budget.Err()
	}
	if c.err != nil {
		return 0
	}
	c.grammar.nodes = append(c.grammar.nodes, n)
	return int32(len(c.grammar.nodes) - 1)
}

// bytes adds one byte of a set.
func (c *compiler) bytes(s Set, next int32) int32 {
	at, ok := c.setAt[s]
	if !ok {
		at = int32(len(c.grammar.sets))
		c.grammar.sets = append(c.grammar.sets, s)
		c.setAt[s] = at
	}
	return c.add(node{kind: nodeBytes, arg: at, next: next})
}

// lead sets the nodes that may follow a split, each once.
func (c *compiler) lead(split int32, to ...int32) {
	if !c.budget.Spend(len(to)) && c.err == nil {
		c.err = c.budget.Err()
	}
	if c.err != nil {
		return
	}
	slices.Sort(to)
	g := c.grammar
	n := &g.nodes[split]
	n.min = int32(len(g.edges))
	g.edges = append(g.edges, slices.Compact(to)...)
	n.max = int32(len(g.edges))
}

func (c *compiler) expr(e *Expr, next int32) int32 {
	if c.err != nil {
		return 0
	}
	switch e.op {
	case opBytes:
		return c.bytes(*e.set, next)
	case opToken:
		return c.add(node{kind: nodeToken, arg: e.token, next: next})
	case opLiteral:
		for i := len(e.text) - 1; i >= 0 && c.err == nil; i-- {
			var one Set
			one.Add(e.text[i], e.text[i])
			next = c.bytes(one, next)
		}
		return next
	case opSequence:
		for _, a := range slices.Backward(e.args) {
			next = c.expr(a, next)
		}
		return next
	case opChoice:
		out := make([]int32, len(e.args))
		for i, a := range e.args {
			out[i] = c.expr(a, next)
		}
		at := c.add(node{kind: nodeSplit})
		c.lead(at, out...)
		return at
	case opRepeat:
		return c.repeat(e, next)
	case opRule:
		at, ok := c.rules[e.rule]
		if !ok {
			at = c.add(node{kind: nodeSplit})
			c.rules[e.rule] = at
			c.pending = append(c.pending, e.rule)
		}
		return c.add(node{kind: nodeCall, arg: at, next: next})
	default:
		return c.free(e.args, next)
	}
}

func (c *compiler) repeat(e *Expr, next int32) int32 {
	body := e.args[0]
	switch {
	case e.max == 0:
		return next
	case e.max < 0 && e.min <= 1: // a loop needs no count
		loop := c.add(node{kind: nodeSplit})
		first := c.expr(body, loop)
		c.lead(loop, first, next)
		if e.min == 1 {
			return first
		}
		return loop
	case e.max == 1 && e.min == 1:
		return c.expr(body, next)
	case e.max == 1:
		at := c.add(node{kind: nodeSplit})
		c.lead(at, c.expr(body, next), next)
		return at
	}
	call := c.expr(body, c.add(node{kind: nodeReturn}))
	return c.add(node{kind: nodeRepeat, arg: call, min: e.min, max: e.max, next: next})
}

// free adds the automaton that finds the literals (Aho and Corasick), without the nodes
// at which one is found.
func (c *compiler) free(literals []*Expr, next int32) int32 {
	type place struct {
		to    map[byte]int
		fail  int
		found bool
	}
	places := []place{{to: map[byte]int{}}}
	for _, literal := range literals {
		l, at := literal.text, 0
		if !c.budget.Spend(256 * len(l)) { // the memory of a place
			c.err = c.budget.Err()
			return 0
		}
		for i := range len(l) {
			to, ok := places[at].to[l[i]]
			if !ok {
				to = len(places)
				places[at].to[l[i]] = to
				places = append(places, place{to: map[byte]int{}})
			}
			at = to
		}
		places[at].found = true
	}
	steps := make([][256]int, len(places))
	queue := []int{0}
	for n := 0; n < len(queue); n++ {
		at := queue[n]
		p := &places[at]
		for b := range 256 {
			to, ok := p.to[byte(b)]
			switch {
			case ok && at == 0:
				queue = append(queue, to)
			case ok:
				places[to].fail = steps[p.fail][b]
				places[to].found = places[to].found || places[places[to].fail].found
				queue = append(queue, to)
			case at != 0:
				to = steps[p.fail][b]
			}
			steps[at][b] = to
		}
	}
	first := make([]int32, len(places))
	for i := range places {
		first[i] = c.add(node{kind: nodeSplit})
	}
	if c.err != nil {
		return 0
	}
	for i := range places {
		sets := map[int]*Set{}
		var order []int
		for b := range 256 {
			to := steps[i][b]
			if places[to].found {
				continue
			}
			if sets[to] == nil {
				sets[to] = &Set{}
				order = append(order, to)
			}
			sets[to].Add(byte(b), byte(b))
		}
		out := []int32{next}
		for _, to := range order {
			out = append(out, c.bytes(*sets[to], first[to]))
		}
		c.lead(first[i], out...)
	}
	return first[0]
}

// checkRecursion finds rules that refer to themselves before they match anything, because
// following them would never end.
func (g *Grammar) checkRecursion(rules map[*Rule]int32) error {
	nullable := g.reach(false)
	names := map[int32]string{}
	for r, at := range rules {
		names[at] = r.Name
	}
	const (
		unseen = iota
		open
		done
	)
	state := make([]uint8, len(g.nodes))
	type visit struct {
		at   int32
		edge int
	}
	for start := range g.nodes {
		if state[start] != unseen {
			continue
		}
		stack := []visit{{int32(start), 0}}
		state[start] = open
		for len(stack) > 0 {
			v := &stack[len(stack)-1]
			to, ok := g.leftEdge(v.at, v.edge, nullable)
			v.edge++
			switch {
			case !ok:
				state[v.at] = done
				stack = stack[:len(stack)-1]
			case state[to] == unseen:
				state[to] = open
				stack = append(stack, visit{to, 0})
			case state[to] == open:
				for i := len(stack) - 1; i >= 0; i-- {
					if name, ok := names[stack[i].at]; ok && name != "" {
						return fmt.Errorf("%s refers to itself before it matches anything", name)
					}
				}
				return errors.New("a part of the grammar repeats what may be empty, or refers to itself before it matches anything")
			}
		}
	}
	return nil
}

// leftEdge returns the i-th node that may follow without a byte or token.
func (g *Grammar) leftEdge(at int32, i int, nullable []bool) (to int32, ok bool) {
	n := &g.nodes[at]
	switch n.kind {
	case nodeSplit:
		if split := g.split(n); i < len(split) {
			return split[i], true
		}
	case nodeCall, nodeRepeat:
		if i == 0 {
			return n.arg, true
		}
		if i == 1 && (nullable[n.arg] || n.kind == nodeRepeat && n.min == 0) {
			return n.next, true
		}
	}
	return 0, false
}

// reach returns the nodes from which a return, or the end, can be reached: by any text,
// or without a byte or token. It takes time in proportion to the edges, whatever their
// order.
func (g *Grammar) reach(byText bool) []bool {
	before := make([]int32, len(g.nodes)+1) // [nodes+1] start in from of each node's predecessors
	each := func(do func(from, to int32)) {
		for i := range g.nodes {
			switch n := &g.nodes[i]; n.kind {
			case nodeBytes, nodeToken:
				if byText && (n.kind == nodeToken || g.sets[n.arg] != Set{}) {
					do(int32(i), n.next)
				}
			case nodeSplit:
				for _, to := range g.split(n) {
					do(int32(i), to)
				}
			case nodeCall, nodeRepeat:
				do(int32(i), n.arg)
				do(int32(i), n.next)
			}
		}
	}
	each(func(_, to int32) { before[to+1]++ })
	for i := range g.nodes {
		before[i+1] += before[i]
	}
	from, filled := make([]int32, before[len(g.nodes)]), slices.Clone(before)
	each(func(at, to int32) {
		from[filled[to]] = at
		filled[to]++
	})
	out := make([]bool, len(g.nodes))
	var found []int32
	for i := range g.nodes {
		if kind := g.nodes[i].kind; kind == nodeReturn || kind == nodeFinal {
			out[i] = true
			found = append(found, int32(i))
		}
	}
	for len(found) > 0 {
		to := found[len(found)-1]
		found = found[:len(found)-1]
		for _, at := range from[before[to]:before[to+1]] {
			n := &g.nodes[at]
			if out[at] || n.kind == nodeCall && !(out[n.arg] && out[n.next]) || n.kind == nodeRepeat && !((n.min == 0 || out[n.arg]) && out[n.next]) {
				continue
			}
			out[at] = true
			found = append(found, at)
		}
	}
	return out
}
