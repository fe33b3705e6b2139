// Package constraint restricts what a model may answer to a grammar: before every token
// it says which tokens may follow.
//
// A grammar is an Expr over bytes and special tokens. Compile turns it into a Grammar, a
// pushdown automaton: a recursive transition network. Its sets of stacks are the states
// of an automaton that is made deterministic as it is used. A Matcher follows one answer
// through the grammar (see the example of package jsonschema). To find the mask of a
// state it walks the vocabulary, a prefix tree of the tokens' bytes, along the state's
// transitions. States and masks are kept, within bounds, for all answers with the same
// grammar.
//
// Tokens that were added to a vocabulary (control tokens, markers) match only themselves:
// their bytes match no bytes of a grammar, and Special names them.
package constraint

// Expr is a part of a grammar. Exprs are values; they may be shared.
type Expr struct {
	op       op
	never    bool // it matches nothing, as far as this is known without rules
	empty    bool // it may match the empty text, with the same caveat
	token    int32
	min, max int32   // repeated; max -1: without end
	size     int32   // parts including those of args; at most maxSize
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

// Size returns how many parts an expression has. Shared parts count each time; the bodies
// of rules do not count.
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

// Rule is a part of a grammar that may refer to itself. Set its Body before compiling the
// grammar.
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

// Empty matches the empty text.
func Empty() *Expr { return &Expr{op: opSequence, empty: true, size: 1} }

// Never matches nothing at all.
func Never() *Expr { return &Expr{op: opChoice, never: true, size: 1} }

// IsNever reports whether e is Never, or must contain it. It does not follow rules;
// Compile does.
func (e *Expr) IsNever() bool { return e.never }

// Literal matches a text.
func Literal(text string) *Expr {
	return &Expr{op: opLiteral, text: text, empty: text == "", size: int32(min(maxSize, 1+len(text)/16))}
}

// Bytes matches one byte of a set.
func Bytes(s Set) *Expr { return &Expr{op: opBytes, set: &s, size: 1} }

// Sequence matches its parts one after the other.
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

// Choice matches any of e.
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

// Optional matches e or nothing.
func Optional(e *Expr) *Expr { return Choice(e, Empty()) }

// Repeat matches e from min to max times; max -1 means no limit. Large numbers cost
// nothing, because they are counted while matching.
func Repeat(e *Expr, min, max int) *Expr {
	out := &Expr{op: opRepeat, args: []*Expr{e}, min: int32(min), max: int32(max), never: min > 0 && e.never, empty: min == 0 || e.empty}
	return out.withArgs()
}

// Use matches a rule.
func Use(r *Rule) *Expr { return &Expr{op: opRule, rule: r, size: 1} }

// Shared returns e as a rule of its own, so that a grammar has it once, however often it
// is used.
func Shared(name string, e *Expr) *Expr {
	out := Use(&Rule{Name: name, Body: e})
	out.never, out.empty = e.never, e.empty
	return out
}

// Special matches a token that was added to the vocabulary.
func Special(id int32) *Expr { return &Expr{op: opToken, token: id, size: 1} }

// Free matches any bytes that contain none of the literals. It may end anywhere.
func Free(literals ...string) *Expr {
	out := &Expr{op: opFree, empty: true}
	for _, l := range literals {
		out.args = append(out.args, Literal(l))
	}
	return out.withArgs()
}
