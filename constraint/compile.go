package constraint

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Limits of a grammar.
const (
	maxNodes = 1 << 20 // of the network
	maxDepth = 256     // of rules and repetitions within each other, while matching
)

// ErrTooLarge is wrapped by Compile's error for a grammar beyond its limits.
var ErrTooLarge = errors.New("constraint: the grammar is too large")

// node is a node of the network. Edges go from a node to later or earlier ones by
// their index.
type node struct {
	kind  kind
	token int32
	next  int32
	call  int32 // the first node of the rule or of the repeated part
	min   int32
	max   int32   // -1: without end
	set   *Set    // which nobody changes
	split []int32 // the nodes that may be next, of a split
}

type kind uint8

const (
	nodeBytes kind = iota
	nodeToken
	nodeSplit
	nodeCall   // call, then next
	nodeRepeat // call from min to max times, then next
	nodeReturn // from a call or a repetition
	nodeFinal  // the end of the grammar
)

// Grammar is a compiled grammar. It is safe for concurrent use.
type Grammar struct {
	nodes []node
	start int32
	cache cache
}

// stateBytes is what a state takes, without its mask: its transitions and threads.
const stateBytes = 256*8 + 256

// Bytes is the most memory that a grammar takes, with the states and masks that it
// keeps.
func (g *Grammar) Bytes() int64 {
	const nodeBytes = int64(unsafe.Sizeof(node{})) + 8
	return nodeBytes*int64(len(g.nodes)) + maxStates*stateBytes + maxMasks*8*int64((g.cache.vocab.size+63)/64)
}

// Compile makes a grammar of an expression for a vocabulary. Its errors wrap
// ErrTooLarge or name the rule that refers to itself before it matches anything.
func Compile(e *Expr, v *Vocabulary) (*Grammar, error) {
	c := &compiler{rules: map[*Rule]int32{}, grammar: &Grammar{}}
	final := c.add(node{kind: nodeFinal})
	start := c.expr(e, final)
	for len(c.pending) > 0 && c.err == nil { // the bodies of rules, which may be met in their own
		r := c.pending[0]
		c.pending = c.pending[1:]
		body := c.expr(r.Body, c.add(node{kind: nodeReturn}))
		c.grammar.nodes[c.rules[r]].split = []int32{body}
	}
	if c.err != nil {
		return nil, c.err
	}
	g := c.grammar
	g.start = start
	g.cache.init(g, v)
	if err := g.checkRecursion(c.rules); err != nil {
		return nil, err
	}
	return g, nil
}

// single are the sets of one byte.
var single = func() (out [256]Set) {
	for b := range out {
		out[b].Add(byte(b), byte(b))
	}
	return out
}()

// compiler builds the network backwards: expr returns the node at which an
// expression begins that goes on at next.
type compiler struct {
	grammar *Grammar
	rules   map[*Rule]int32
	pending []*Rule
	err     error
}

func (c *compiler) add(n node) int32 {
	if len(c.grammar.nodes) >= maxNodes {
		if c.err == nil {
			c.err = fmt.Errorf("%w: it takes more than %d nodes", ErrTooLarge, maxNodes)
		}
		return 0
	}
	c.grammar.nodes = append(c.grammar.nodes, n)
	return int32(len(c.grammar.nodes) - 1)
}

func (c *compiler) expr(e *Expr, next int32) int32 {
	if c.err != nil {
		return 0
	}
	switch e.op {
	case opBytes:
		return c.add(node{kind: nodeBytes, set: &e.set, next: next})
	case opToken:
		return c.add(node{kind: nodeToken, token: e.token, next: next})
	case opLiteral:
		text := e.literals[0]
		for i := len(text) - 1; i >= 0; i-- {
			next = c.add(node{kind: nodeBytes, set: &single[text[i]], next: next})
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
		return c.add(node{kind: nodeSplit, split: out})
	case opRepeat:
		return c.repeat(e, next)
	case opRule:
		at, ok := c.rules[e.rule]
		if !ok {
			at = c.add(node{kind: nodeSplit})
			c.rules[e.rule] = at
			c.pending = append(c.pending, e.rule)
		}
		return c.add(node{kind: nodeCall, call: at, next: next})
	default:
		return c.free(e.literals, next)
	}
}

func (c *compiler) repeat(e *Expr, next int32) int32 {
	body := e.args[0]
	switch {
	case e.max == 0:
		return next
	case e.max < 0 && e.min <= 1: // a loop, which needs no count
		loop := c.add(node{kind: nodeSplit})
		first := c.expr(body, loop)
		if c.err == nil {
			c.grammar.nodes[loop].split = []int32{first, next}
		}
		if e.min == 1 {
			return c.expr(body, loop)
		}
		return loop
	case e.max == 1 && e.min == 1:
		return c.expr(body, next)
	case e.max == 1:
		return c.expr(Optional(body), next)
	}
	call := c.expr(body, c.add(node{kind: nodeReturn}))
	return c.add(node{kind: nodeRepeat, call: call, min: int32(e.min), max: int32(e.max), next: next})
}

// free adds the automaton that finds the literals (Aho and Corasick), without the
// nodes at which one is found.
func (c *compiler) free(literals []string, next int32) int32 {
	type place struct {
		to    map[byte]int
		fail  int
		found bool
	}
	places := []place{{to: map[byte]int{}}}
	for _, l := range literals {
		at := 0
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
			out = append(out, c.add(node{kind: nodeBytes, set: sets[to], next: first[to]}))
		}
		c.grammar.nodes[first[i]].split = out
	}
	return first[0]
}

// checkRecursion finds rules that refer to themselves before they match anything:
// following them would have no end.
func (g *Grammar) checkRecursion(rules map[*Rule]int32) error {
	nullable := g.nullable()
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
						return fmt.Errorf("constraint: %s refers to itself before it matches anything", name)
					}
				}
				return errors.New("constraint: a part of the grammar repeats what may be nothing, or refers to itself before it matches anything")
			}
		}
	}
	return nil
}

// leftEdge is the i-th node that may be next without a byte or token.
func (g *Grammar) leftEdge(at int32, i int, nullable []bool) (to int32, ok bool) {
	n := &g.nodes[at]
	switch n.kind {
	case nodeSplit:
		if i < len(n.split) {
			return n.split[i], true
		}
	case nodeCall, nodeRepeat:
		if i == 0 {
			return n.call, true
		}
		if i == 1 && (nullable[n.call] || n.kind == nodeRepeat && n.min == 0) {
			return n.next, true
		}
	}
	return 0, false
}

// nullable are the nodes from which a return, or the end, may be reached without a
// byte or token.
func (g *Grammar) nullable() []bool {
	out := make([]bool, len(g.nodes))
	for pass, changed := 0, true; changed; pass++ {
		changed = false
		for i := range g.nodes {
			if pass%2 == 0 { // rules follow each other either way, so from both ends
				i = len(g.nodes) - 1 - i
			}
			if out[i] {
				continue
			}
			n := &g.nodes[i]
			switch n.kind {
			case nodeReturn, nodeFinal:
				out[i] = true
			case nodeSplit:
				out[i] = slices.ContainsFunc(n.split, func(to int32) bool { return out[to] })
			case nodeCall:
				out[i] = out[n.call] && out[n.next]
			case nodeRepeat:
				out[i] = (n.min == 0 || out[n.call]) && out[n.next]
			}
			changed = changed || out[i]
		}
	}
	return out
}
