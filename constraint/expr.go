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

import "slices"

// Expr is a part of a grammar. Exprs are values; they may be shared.
type Expr struct {
	op       op
	set      Set     // bytes
	args     []*Expr // sequence, choice; repeated: one
	min, max int     // repeated; max -1: without end
	rule     *Rule
	token    int32
	literals []string // free; one: literal
}

type op int

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
func Empty() *Expr { return &Expr{op: opSequence} }

// Never matches nothing at all.
func Never() *Expr { return &Expr{op: opChoice} }

// IsNever reports whether e is Never, or cannot but contain it.
func (e *Expr) IsNever() bool {
	switch e.op {
	case opChoice:
		return !slices.ContainsFunc(e.args, func(a *Expr) bool { return !a.IsNever() })
	case opSequence:
		return slices.ContainsFunc(e.args, (*Expr).IsNever)
	case opRepeat:
		return e.min > 0 && e.args[0].IsNever()
	}
	return false
}

// Literal is a text.
func Literal(text string) *Expr { return &Expr{op: opLiteral, literals: []string{text}} }

// Bytes is one byte of a set.
func Bytes(s Set) *Expr { return &Expr{op: opBytes, set: s} }

// Sequence is one after the other.
func Sequence(e ...*Expr) *Expr {
	if len(e) == 1 {
		return e[0]
	}
	return &Expr{op: opSequence, args: e}
}

// Choice is any of e.
func Choice(e ...*Expr) *Expr {
	if len(e) == 1 {
		return e[0]
	}
	return &Expr{op: opChoice, args: e}
}

// Optional is e or nothing.
func Optional(e *Expr) *Expr { return Choice(e, Empty()) }

// Repeat is e from min to max times; max -1 has no end. The numbers cost nothing:
// they are counted while matching.
func Repeat(e *Expr, min, max int) *Expr {
	return &Expr{op: opRepeat, args: []*Expr{e}, min: min, max: max}
}

// Use is a rule.
func Use(r *Rule) *Expr { return &Expr{op: opRule, rule: r} }

// Shared is e as a rule of its own: however often it is used, a grammar has it once.
func Shared(name string, e *Expr) *Expr { return Use(&Rule{Name: name, Body: e}) }

// Special is a token that was added to the vocabulary.
func Special(id int32) *Expr { return &Expr{op: opToken, token: id} }

// Free is any bytes in which none of the literals occurs. It may end anywhere.
func Free(literals ...string) *Expr {
	return &Expr{op: opFree, literals: literals}
}
