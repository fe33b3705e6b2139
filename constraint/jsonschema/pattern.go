package jsonschema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	c "ringmaster/constraint"
)

// maxProgram bounds the program of a regular expression that is matched with texts of the
// schema, in instructions, because package regexp allows programs of 128 MiB.
const maxProgram = 1 << 13

// pattern is a regular expression of the schema, compiled once.
type pattern struct {
	re   *regexp.Regexp
	size int // size of its program
	err  error
}

// match reports whether a pattern matches a text; known is false if that cannot be
// decided.
func (k *compiler) match(expression, s string) (ok, known bool) {
	p := k.pattern(expression)
	if p.err != nil && k.err == nil { // it may have lookaheads
		ok, err := c.Condition{Pattern: expression}.Matches(s, k.options.Budget)
		return ok, err == nil
	}
	// In the worst case a match takes a step for each instruction and character.
	if p.err != nil || !k.spend(1+len(s)*p.size/32) {
		return false, false
	}
	return p.re.MatchString(s), true
}

// pattern compiles a regular expression, or finds it.
func (k *compiler) pattern(expression string) *pattern {
	p := k.patterns[expression]
	if p != nil {
		return p
	}
	p = &pattern{}
	k.patterns[expression] = p
	if !k.spend(64) {
		p.err = errNoWork
		return p
	}
	parsed, err := c.ParseRegexp(expression, k.options.Budget)
	if err != nil {
		p.err = err
		return p
	}
	if p.size = programSize(parsed); p.size > maxProgram {
		p.err = errors.New("the regular expression is too large")
		return p
	}
	if !k.spend(c.RegexpWork(expression) + p.size) { // Compile parses it again
		p.err = errNoWork
		return p
	}
	p.re, p.err = regexp.Compile(expression)
	return p
}

// errNoWork is a placeholder for the budget's error.
var errNoWork = errors.New("no work is left")

// programSize returns roughly how many instructions an expression has; repetitions are
// unrolled.
func programSize(e *syntax.Regexp) int {
	n := 1
	if e.Op == syntax.OpLiteral {
		n = len(e.Rune)
	}
	for _, s := range e.Sub {
		n = min(maxProgram+1, n+programSize(s))
	}
	if e.Op == syntax.OpRepeat {
		n = min(maxProgram+1, n*max(1, e.Min, e.Max))
	}
	return n
}

// regular returns the grammar of a pattern in one of the forms of characters. Each is made
// once, however often the schema uses it. What has no direct translation, such as
// lookaheads, becomes an automaton.
func (k *compiler) regular(expression string, char c.Characters, form string) (*c.Expr, error) {
	return k.once(fmt.Sprint(form, expression), func() (*c.Expr, error) {
		e, err := c.Regexp(expression, false, char, k.options.Budget)
		if err != nil && k.options.Budget.Err() == nil {
			return c.Intersect([]c.Condition{{Pattern: expression}}, 0, -1, char, k.options.Budget)
		}
		return e, err
	})
}

// intersection returns the grammar of the texts of a length that satisfy all conditions.
func (k *compiler) intersection(list []c.Condition, min, max int, char c.Characters, form string) (*c.Expr, error) {
	return k.once(fmt.Sprint(form, min, max, list), func() (*c.Expr, error) {
		return c.Intersect(list, min, max, char, k.options.Budget)
	})
}

// once returns what was made for a key before, or makes it.
func (k *compiler) once(key string, do func() (*c.Expr, error)) (*c.Expr, error) {
	if e := k.regulars[key]; e != nil {
		return e, nil
	}
	if !k.spend(1) {
		return c.Never(), nil
	}
	e, err := do()
	if !k.spend(0) {
		return c.Never(), nil
	}
	if err != nil {
		return nil, err
	}
	if !e.IsNever() {
		e = c.Shared("a regular expression", e)
	}
	k.regulars[key] = e
	return e, nil
}
