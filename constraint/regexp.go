package constraint

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Characters makes the expression of one character of a list of ranges, as Runes does for
// plain text. Texts inside JSON strings need another one.
type Characters func(pairs ...rune) *Expr

// maxPattern bounds a regular expression, in bytes.
const maxPattern = 4096

// Regexp returns the texts that a regular expression matches, in the syntax of Go's
// package regexp, which is RE2's and nearly that of ECMAScript. With whole the expression
// matches the whole text. Otherwise it matches any part of it, as in JSON schemas, where
// ^ and $ mean the ends of the text. What is not regular (look-around, back-references)
// is refused, and so are ends of the text, lines or words inside an expression. Its
// errors may wrap the budget's.
func Regexp(pattern string, whole bool, char Characters, b *Budget) (*Expr, error) {
	parsed, err := ParseRegexp(pattern, b)
	if err != nil {
		return nil, err
	}
	r := &regular{characters: char, classes: map[string]*Expr{}, budget: b}
	e := r.ends(parsed, whole, whole)
	if r.err != nil {
		return nil, r.err
	}
	return e, nil
}

// foldedRange is the work of reading a range of characters in an expression that ignores
// case, because package regexp tries each of up to 125,000 characters in it.
const foldedRange = 1 << 15

// RegexpWork returns what reading a regular expression takes, in units of a Budget.
func RegexpWork(pattern string) int {
	work := 64 + 16*len(pattern)
	if strings.Contains(pattern, "(?") && strings.Contains(pattern, "i") {
		for i := range len(pattern) - 1 {
			if pattern[i] == '-' && (pattern[i+1] == '\\' || pattern[i+1] >= utf8.RuneSelf) { // other ranges end with ASCII
				work += foldedRange
			}
		}
	}
	return work
}

// ParseRegexp reads a regular expression of a bounded length, and spends what that takes.
func ParseRegexp(pattern string, b *Budget) (*syntax.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the regular expression has %d bytes; at most %d are allowed", len(pattern), maxPattern)
	}
	if !b.Spend(RegexpWork(pattern)) {
		return nil, b.Err()
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl|syntax.UnicodeGroups)
	if err != nil {
		return nil, fmt.Errorf("it is not a regular expression of RE2: %w", err)
	}
	return parsed, nil
}

// regular translates regular expressions.
type regular struct {
	characters Characters
	classes    map[string]*Expr // keyed by their ranges
	nodes      int
	budget     *Budget
	err        error
}

const (
	maxRegular = 1 << 16 // most parts of a translated expression
	largeClass = 64      // a class with this many parts is a rule, so that a grammar has it once
)

// char returns one character of a list of ranges; each list is made once.
func (r *regular) char(pairs ...rune) *Expr {
	key := fmt.Sprint(pairs) // not string(pairs), because that maps all surrogates to one key
	e, ok := r.classes[key]
	if !ok {
		e = r.characters(pairs...)
		if !r.budget.Spend(e.Size()) {
			return r.fail("%w", r.budget.Err())
		}
		if r.nodes += e.Size(); r.nodes > maxRegular {
			return r.fail("the regular expression is too large")
		}
		if e.Size() > largeClass && !e.IsNever() {
			e = Shared("a class of characters", e)
		}
		r.classes[key] = e
	}
	r.nodes += e.Size()
	return e
}

func (r *regular) fail(format string, args ...any) *Expr {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return Never()
}

// any matches any text.
func (r *regular) any() *Expr { return Repeat(r.char(0, utf8.MaxRune), 0, -1) }

// ends translates an expression at both ends of the text; begun and done mean that
// nothing may precede or follow it.
func (r *regular) ends(e *syntax.Regexp, begun, done bool) *Expr {
	switch e.Op {
	case syntax.OpAlternate:
		var out []*Expr
		for _, s := range e.Sub {
			out = append(out, r.ends(s, begun, done))
		}
		return Choice(out...)
	case syntax.OpCapture:
		return r.ends(e.Sub[0], begun, done)
	case syntax.OpConcat, syntax.OpBeginText, syntax.OpEndText:
		parts := []*syntax.Regexp{e}
		if e.Op == syntax.OpConcat {
			parts = e.Sub
		}
		for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
			begun, parts = true, parts[1:]
		}
		for n := len(parts); n > 0 && parts[n-1].Op == syntax.OpEndText; n = len(parts) {
			done, parts = true, parts[:n-1]
		}
		return r.between(parts, begun, done)
	}
	return r.between([]*syntax.Regexp{e}, begun, done)
}

func (r *regular) between(parts []*syntax.Regexp, begun, done bool) *Expr {
	var out []*Expr
	if !begun {
		out = append(out, r.any())
	}
	for _, p := range parts {
		out = append(out, r.expr(p))
	}
	if !done {
		out = append(out, r.any())
	}
	return Sequence(out...)
}

func (r *regular) expr(e *syntax.Regexp) *Expr {
	if r.err == nil && !r.budget.Spend(1) {
		return r.fail("%w", r.budget.Err())
	}
	if r.nodes++; r.nodes > maxRegular || r.err != nil {
		return r.fail("the regular expression is too large")
	}
	switch e.Op {
	case syntax.OpNoMatch:
		return Never()
	case syntax.OpEmptyMatch:
		return Empty()
	case syntax.OpLiteral:
		var out []*Expr
		for _, c := range e.Rune {
			if r.err != nil {
				break
			}
			out = append(out, r.char(r.folded(c, e.Flags)...))
		}
		return Sequence(out...)
	case syntax.OpCharClass:
		return r.char(e.Rune...)
	case syntax.OpAnyChar:
		return r.char(0, utf8.MaxRune)
	case syntax.OpAnyCharNotNL:
		return r.char(0, '\n'-1, '\n'+1, utf8.MaxRune)
	case syntax.OpCapture:
		return r.expr(e.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return r.repeat(e)
	case syntax.OpQuest:
		return Optional(r.expr(e.Sub[0]))
	case syntax.OpConcat, syntax.OpAlternate:
		out := make([]*Expr, len(e.Sub))
		for i, s := range e.Sub {
			out[i] = r.expr(s)
		}
		if e.Op == syntax.OpConcat {
			return Sequence(out...)
		}
		return Choice(out...)
	}
	return r.fail("%q stands inside the regular expression; ends of texts, lines and words are supported at its ends only", e.String())
}

// repeat translates a repetition. If a part may be empty, its non-empty form is repeated.
func (r *regular) repeat(e *syntax.Regexp) *Expr {
	least, most := 0, -1
	switch e.Op {
	case syntax.OpPlus:
		least = 1
	case syntax.OpRepeat:
		least, most = e.Min, e.Max
	}
	part := e.Sub[0]
	for part.Op == syntax.OpCapture {
		part = part.Sub[0]
	}
	if part.Op == syntax.OpStar || part.Op == syntax.OpQuest { // (a*)+ is a*
		if most < 0 {
			return r.repeat(&syntax.Regexp{Op: syntax.OpStar, Sub: part.Sub})
		}
	}
	body := r.expr(part)
	if body.empty {
		return r.fail("%q repeats what may be nothing", e.String())
	}
	return Repeat(body, least, most)
}

// folded returns the ranges of a character, including its other cases if case does not
// matter.
func (r *regular) folded(c rune, flags syntax.Flags) []rune {
	out := []rune{c, c}
	if flags&syntax.FoldCase == 0 {
		return out
	}
	for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
		out = append(out, f, f)
	}
	return out
}
