package constraint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// machine runs a regular expression with lookaheads over a text, one character after the
// other. Its states are sets of threads; each thread is a place in the program of the
// expression with duties: lookaheads that the rest of the text must meet. So the states
// are finite, and machines can be run side by side.
type machine struct {
	prog     *syntax.Prog
	anchored bool // it must match from the start of the text
	whole    bool // it must match up to the end
	looks    []*machine
	not      []bool         // [looks] the lookahead must not match
	spawns   map[uint32]int // the look that begins at an instruction
	budget   *Budget

	ids    map[string]int
	states []machineState
	err    error
}

// progThread is a place in a program with its duties, sorted.
type progThread struct {
	pc     uint32
	duties []duty
}

// duty is a state of the machine of a lookahead.
type duty struct{ look, state int }

type machineState struct {
	threads []progThread // at instructions that read a character, or at the match
	matched bool         // whatever follows
	ends    bool         // the text may end here
	next    map[int]int  // by the class of the character
}

// Limits of automata.
const (
	maxMachine = 1 << 12 // states of one expression
	maxProduct = 1 << 15 // states of several at once
	maxPlaces  = 1 << 10 // of one state
	maxLooks   = 16      // lookaheads of one expression
)

var errManyStates = errors.New("the regular expression has too many states")

// newMachine reads a regular expression; its length is the caller's to bound.
func newMachine(pattern string, anchored, whole bool, nested int, b *Budget) (*machine, error) {
	if !b.Spend(RegexpWork(pattern)) {
		return nil, b.Err()
	}
	text, looks, err := cutLookaheads(pattern)
	switch {
	case err != nil:
		return nil, err
	case len(looks) > maxLooks || nested > 4:
		return nil, errors.New("the regular expression has too many lookaheads")
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.UnicodeGroups)
	if err != nil {
		return nil, fmt.Errorf("it is not a regular expression of RE2: %w", err)
	}
	names := parsed.CapNames()
	if !b.Spend(4 * programSize(parsed)) {
		return nil, b.Err()
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	m := &machine{prog: prog, anchored: anchored, whole: whole, spawns: map[uint32]int{}, budget: b, ids: map[string]int{}}
	for _, l := range looks {
		look, err := newMachine(l.pattern, true, false, nested+1, b)
		if err != nil {
			return nil, err
		}
		m.looks, m.not = append(m.looks, look), append(m.not, l.not)
	}
	for pc := range prog.Inst {
		i := &prog.Inst[pc]
		switch i.Op {
		case syntax.InstCapture:
			if number, ok := strings.CutPrefix(names[i.Arg/2], lookName); ok && i.Arg%2 == 0 {
				if n, err := strconv.Atoi(number); err == nil && n < len(looks) {
					m.spawns[uint32(pc)] = n
				}
			}
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0 {
				return nil, errors.New("ends of lines and words in a regular expression are not supported")
			}
		}
	}
	return m, nil
}

// programSize returns roughly how many instructions an expression has, up to a limit:
// repetitions are unrolled.
func programSize(e *syntax.Regexp) int {
	const most = 1 << 20
	n := 1 + len(e.Rune)
	for _, s := range e.Sub {
		n = min(most, n+programSize(s))
	}
	if e.Op == syntax.OpRepeat {
		n = min(most, n*max(1, e.Min, e.Max))
	}
	return n
}

// closure collects the threads that are reached without a character.
type closure struct {
	machine *machine
	first   bool // at the start of the text
	end     bool // at its end
	seen    map[string]bool
	out     []progThread
	matched bool // without a duty
}

// add follows a thread.
func (c *closure) add(pc uint32, duties []duty) {
	m := c.machine
	key := threadKey(pc, duties)
	if m.err != nil || c.matched || c.seen[key] {
		return
	}
	c.seen[key] = true
	if !m.budget.Spend(1 + len(duties)) {
		m.err = m.budget.Err()
		return
	}
	if len(c.seen) > maxPlaces {
		m.err = errManyStates
		return
	}
	i := &m.prog.Inst[pc]
	switch i.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		c.add(i.Out, duties)
		c.add(i.Arg, duties)
	case syntax.InstCapture, syntax.InstNop:
		if n, ok := m.spawns[pc]; ok {
			look := m.looks[n]
			started, keep, alive := m.duty(n, look.start(c.first))
			if m.err = look.err; !alive {
				return
			}
			if keep {
				duties = withDuty(duties, started)
			}
		}
		c.add(i.Out, duties)
	case syntax.InstEmptyWidth:
		want := syntax.EmptyOp(i.Arg)
		if want&syntax.EmptyBeginText != 0 && !c.first || want&syntax.EmptyEndText != 0 && !c.end {
			return
		}
		c.add(i.Out, duties)
	case syntax.InstMatch:
		if !m.whole && len(duties) == 0 {
			c.matched = true
			return
		}
		c.out = append(c.out, progThread{pc, duties})
	case syntax.InstFail:
	default: // reads a character
		c.out = append(c.out, progThread{pc, duties})
	}
}

// duty returns what a lookahead in a state demands: keep says that the rest of the text
// decides, alive that it has not failed.
func (m *machine) duty(look, state int) (d duty, keep, alive bool) {
	s := &m.looks[look].states[state]
	switch {
	case s.matched:
		return d, false, !m.not[look]
	case len(s.threads) == 0 && !s.ends:
		return d, false, m.not[look]
	}
	return duty{look, state}, true, true
}

func withDuty(duties []duty, d duty) []duty {
	if slices.Contains(duties, d) {
		return duties
	}
	out := append(slices.Clone(duties), d)
	slices.SortFunc(out, func(a, b duty) int { return (a.look-b.look)<<20 + a.state - b.state })
	return out
}

func threadKey(pc uint32, duties []duty) string {
	key := binary.AppendUvarint(nil, uint64(pc))
	for _, d := range duties {
		key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(d.look)+1), uint64(d.state))
	}
	return string(binary.AppendUvarint(key, 0))
}

// start returns the state before the first character that the machine reads; first says
// that it is the first of the text.
func (m *machine) start(first bool) int {
	return m.state([]progThread{{uint32(m.prog.Start), nil}}, first)
}

// state returns the state of some threads, which are followed.
func (m *machine) state(from []progThread, first bool) int {
	if m.err != nil {
		return 0
	}
	c := &closure{machine: m, first: first, seen: map[string]bool{}}
	for _, t := range from {
		c.add(t.pc, t.duties)
	}
	s := machineState{threads: c.out, matched: c.matched, ends: c.matched, next: map[int]int{}}
	if c.matched {
		s.threads = nil
	} else {
		end := &closure{machine: m, first: first, end: true, seen: map[string]bool{}}
		for _, t := range from {
			end.add(t.pc, t.duties)
		}
		s.ends = end.matched || slices.ContainsFunc(end.out, func(t progThread) bool { return m.prog.Inst[t.pc].Op == syntax.InstMatch && m.met(t.duties) })
	}
	var key strings.Builder
	fmt.Fprint(&key, s.matched, s.ends)
	for _, t := range s.threads {
		key.WriteString(threadKey(t.pc, t.duties))
	}
	if id, ok := m.ids[key.String()]; ok {
		return id
	}
	if len(m.states) >= maxMachine && m.err == nil {
		m.err = errManyStates
	}
	id := len(m.states)
	m.ids[key.String()] = id
	m.states = append(m.states, s)
	return id
}

// met reports whether the end of the text meets duties.
func (m *machine) met(duties []duty) bool {
	for _, d := range duties {
		if m.looks[d.look].states[d.state].ends == m.not[d.look] {
			return false
		}
	}
	return true
}

// step returns the state after a character, which stands for its class.
func (m *machine) step(state int, r rune, class int) int {
	if m.err != nil {
		return state
	}
	s := &m.states[state]
	if s.matched {
		return state
	}
	if to, ok := s.next[class]; ok {
		return to
	}
	var from []progThread
	for _, t := range s.threads {
		i := &m.prog.Inst[t.pc]
		to := t.pc // after the match everything is read
		if i.Op != syntax.InstMatch {
			if !matchesRune(i, r) {
				continue
			}
			to = i.Out
		} else if m.whole {
			continue
		}
		if duties, alive := m.advance(t.duties, r, class); alive {
			from = append(from, progThread{to, duties})
		}
	}
	if !m.anchored {
		from = append(from, progThread{uint32(m.prog.Start), nil})
	}
	to := m.state(from, false)
	m.states[state].next[class] = to
	return to
}

// advance returns the duties after a character; alive says that none has failed.
func (m *machine) advance(duties []duty, r rune, class int) (out []duty, alive bool) {
	for _, d := range duties {
		look := m.looks[d.look]
		next := look.step(d.state, r, class)
		if look.err != nil {
			m.err = look.err
			return nil, false
		}
		started, keep, ok := m.duty(d.look, next)
		if !ok {
			return nil, false
		}
		if keep {
			out = withDuty(out, started)
		}
	}
	return out, true
}

func matchesRune(i *syntax.Inst, r rune) bool {
	switch i.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	}
	return i.MatchRune(r)
}
