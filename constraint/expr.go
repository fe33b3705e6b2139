// Package constraint restricts what a model may answer to a grammar: it says before
// every token which tokens may come next.
//
// A grammar is an Expr over bytes and special tokens. Compile makes a Grammar of it,
// a pushdown automaton: a recursive transition network, whose sets of stacks are the
// states of an automaton that is made deterministic as it is used. A Matcher follows
// one answer through it. The mask of a state is found by walking the vocabulary,
// which is a prefix tree of the tokens' bytes, along the state's transitions; states
// and masks are kept, within bounds, for all answers with the same grammar.
//
// Tokens that were added to a vocabulary (control tokens, markers) stand for
// themselves: their bytes match no bytes of a grammar, and Special names them.
package constraint

// Expr is a part of a grammar. Exprs are values; they may be shared.
type Expr struct {
	op       op
	never    bool // it matches nothing, as far as it is known without rules
	empty    bool // it may match the empty text, likewise
	token    int32
	min, max int32   // repeated; max -1: without end
	size     int32   // parts, with those of args; at most maxSize
	args     []*Expr // sequence, choice; repeated: one; free: literals
	rule     *Rule
	text     string // literal
	set      *Set   // bytes
}

type op uint8

const (
	opBytes op = iota
	opSequence
	opChoice
	opRepeat
	opRule
	opToken
	opFree
	opLiteral
)

// maxSize is where counting the parts of an expression ends.
const maxSize = 1 << 30

// Size is how many parts an expression has, those of shared parts each time, but for
// rules, whose bodies do not count.
func (e *Expr) Size() int { return int(e.size) }

// withArgs sets the size of an expression with arguments.
func (e *Expr) withArgs() *Expr {
	size := 1
	for _, a := range e.args {
		size = min(maxSize, size+int(a.size))
	}
	e.size = int32(size)
	return e
}

// Rule is a part of a grammar that may refer to itself. Its Body is set before the
// grammar is compiled.
type Rule struct {
	Name string // for errors
	Body *Expr
}

// Set is a set of bytes.
type Set [4]uint64

// Has reports whether a byte is in the set.
func (s *Set) Has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// Add adds the bytes from low to high.
func (s *Set) Add(low, high byte) {
	for b := int(low); b <= int(high); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

// Empty is the empty text.
func Empty() *Expr { return &Expr{op: opSequence, empty: true, size: 1} }

// Never matches nothing at all.
func Never() *Expr { return &Expr{op: opChoice, never: true, size: 1} }

// IsNever reports whether e is Never, or cannot but contain it. It does not follow
// rules; Compile does.
func (e *Expr) IsNever() bool { return e.never }

// Literal is a text.
func Literal(text string) *Expr {
	return &Expr{op: opLiteral, text: text, empty: text == "", size: int32(min(maxSize, 1+len(text)/16))}
}

// Bytes is one byte of a set.
func Bytes(s Set) *Expr { return &Expr{op: opBytes, set: &s, size: 1} }

// Sequence is one after the other.
func Sequence(e ...*Expr) *Expr {
	if len(e) == 1 {
		return e[0]
	}
	out := &Expr{op: opSequence, args: e, empty: true}
	for _, a := range e {
		out.never, out.empty = out.never || a.never, out.empty && a.empty
	}
	return out.withArgs()
}

// Choice is any of e.
func Choice(e ...*Expr) *Expr {
	if len(e) == 1 {
		return e[0]
	}
	out := &Expr{op: opChoice, args: e, never: true}
	for _, a := range e {
		out.never, out.empty = out.never && a.never, out.empty || a.empty
	}
	return out.withArgs()
}

// Optional is e or nothing.
func Optional(e *Expr) *Expr { return Choice(e, Empty()) }

// Repeat is e from min to max times; max -1 has no end. The numbers cost nothing:
// they are counted while matching.
func Repeat(e *Expr, min, max int) *Expr {
	out := &Expr{op: opRepeat, args: []*Expr{e}, min: int32(min), max: int32(max), never: min > 0 && e.never, empty: min == 0 || e.empty}
	return out.withArgs()
}

// Use is a rule.
func Use(r *Rule) *Expr { return &Expr{op: opRule, rule: r, size: 1} }

// Shared is e as a rule of its own: however often it is used, a grammar has it once.
func Shared(name string, e *Expr) *Expr {
	out := Use(&Rule{Name: name, Body: e})
	out.never, out.empty = e.never, e.empty
	return out
}

// Special is a token that was added to the vocabulary.
func Special(id int32) *Expr { return &Expr{op: opToken, token: id, size: 1} }

// Free is any bytes in which none of the literals occurs. It may end anywhere.
func Free(literals ...string) *Expr {
	out := &Expr{op: opFree, empty: true}
	for _, l := range literals {
		out.args = append(out.args, Literal(l))
	}
	return out.withArgs()
}
