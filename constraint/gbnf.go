package constraint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The limits of a grammar as text.
const (
	maxGrammarText  = 64 << 10 // bytes
	maxGrammarRules = 512
	maxGroups       = 64      // nesting of groups
	maxTimes        = 1 << 16 // of {m,n}
)

// GBNF returns the expression for a grammar in llama.cpp's notation. The rule "root" is
// the whole text:
//
//	root  ::= item ("," ws item){0,9}   # a comment
//	item  ::= "a" | [^,\n]+ | .
//	ws    ::= " "?
//
// A rule continues until the name of the next one and its "::=". In texts and classes
// of characters \n, \r, \t, \\, \", \[, \], \-, \^, \xHH, \uHHHH and \UHHHHHHHH stand
// for characters. Tokens by their ids are refused. Errors name line and column.
func GBNF(text string) (*Expr, error) {
	if len(text) > maxGrammarText {
		return nil, fmt.Errorf("the grammar has %d bytes; at most %d are allowed", len(text), maxGrammarText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the grammar is not valid UTF-8")
	}
	p := &gbnf{text: text, rules: map[string]*gbnfRule{}}
	p.grammar()
	if p.err == nil {
		p.check()
	}
	if p.err != nil {
		return nil, p.err
	}
	return Use(&p.rules["root"].rule), nil
}

// gbnf parses a grammar. After an error it continues to the end without effect.
type gbnf struct {
	text  string
	pos   int
	depth int
	rules map[string]*gbnfRule
	order []*gbnfRule // in the order of their first mention
	err   error
}

type gbnfRule struct {
	rule    Rule
	name    string
	at      int  // position of its definition, or of its first use
	defined bool // it has a body
	ends    bool // it matches some text
}

// fail keeps the first error, with its position.
func (p *gbnf) fail(at int, format string, args ...any) {
	if p.err == nil {
		line, column := p.place(at)
		p.err = fmt.Errorf("line %d, column %d: %s", line, column, fmt.Sprintf(format, args...))
	}
	p.pos = len(p.text)
}

// place returns the line and the column of a position, from 1.
func (p *gbnf) place(at int) (line, column int) {
	before := p.text[:min(at, len(p.text))]
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

// space skips white space and comments.
func (p *gbnf) space() {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			p.pos++
		case c == '#':
			n := strings.IndexByte(p.text[p.pos:], '\n')
			if n < 0 {
				n = len(p.text) - p.pos
			}
			p.pos += n
		default:
			return
		}
	}
}

// next returns the next byte, 0 at the end.
func (p *gbnf) next() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// take skips a text if it comes next.
func (p *gbnf) take(s string) bool {
	if !strings.HasPrefix(p.text[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	return true
}

// shown describes what comes next, for errors.
func (p *gbnf) shown() string {
	if p.pos >= len(p.text) {
		return "the end of the grammar"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return strconv.QuoteRune(r)
}

// name reads the name of a rule, "" if there is none.
func (p *gbnf) name() string {
	start := p.pos
	for p.pos < len(p.text) && isRuleName(p.text[p.pos]) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func isRuleName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// grammar reads all rules.
func (p *gbnf) grammar() {
	for p.space(); p.pos < len(p.text); p.space() {
		at := p.pos
		name := p.name()
		if name == "" {
			p.fail(at, "expected the name of a rule, not %s", p.shown())
			return
		}
		p.space()
		if !p.take("::=") {
			p.fail(p.pos, "expected \"::=\" after the name %q, not %s", name, p.shown())
			return
		}
		r := p.rule(name, at)
		if r.defined {
			line, _ := p.place(r.at)
			p.fail(at, "the rule %q is already defined in line %d", name, line)
			return
		}
		line, _ := p.place(at)
		r.defined, r.at, r.rule.Name = true, at, fmt.Sprintf("%s, in line %d", name, line)
		r.rule.Body = p.choice()
		if p.next() == ')' {
			p.fail(p.pos, "there is no \"(\" for this \")\"")
		}
	}
}

// rule returns the rule with a name.
func (p *gbnf) rule(name string, at int) *gbnfRule {
	r := p.rules[name]
	if r == nil {
		if len(p.rules) >= maxGrammarRules {
			p.fail(at, "the grammar has more than %d rules", maxGrammarRules)
		}
		r = &gbnfRule{name: name, at: at}
		p.rules[name] = r
		p.order = append(p.order, r)
	}
	return r
}

// choice reads alternatives.
func (p *gbnf) choice() *Expr {
	all := []*Expr{p.sequence()}
	for p.take("|") {
		all = append(all, p.sequence())
	}
	return Choice(all...)
}

// sequence reads items up to "|", ")", the next rule or the end.
func (p *gbnf) sequence() *Expr {
	var all []*Expr
	for {
		p.space()
		if c := p.next(); c == 0 || c == '|' || c == ')' {
			return Sequence(all...)
		}
		start := p.pos
		if p.name() != "" {
			p.space()
			if strings.HasPrefix(p.text[p.pos:], "::=") {
				p.pos = start
				if p.depth > 0 {
					p.fail(start, "a rule begins within a group; is there a \")\" missing?")
				}
				return Sequence(all...)
			}
			p.pos = start
		}
		e := p.item()
		all = append(all, p.times(e))
	}
}

// item reads a text, a class, a group or the name of a rule.
func (p *gbnf) item() *Expr {
	at := p.pos
	switch c := p.next(); {
	case c == '"':
		return p.literal()
	case c == '[':
		return p.class()
	case c == '.':
		p.pos++
		return Runes(0, utf8.MaxRune)
	case c == '(':
		return p.group()
	case isRuleName(c):
		return Use(&p.rule(p.name(), at).rule)
	case c == '<' || c == '!':
		p.fail(at, "tokens are not supported; write their text")
	case strings.IndexByte("*+?{", c) >= 0:
		p.fail(at, "there is nothing before %s that could be repeated", p.shown())
	default:
		p.fail(at, "expected a text in quotes, a class in brackets, a group or the name of a rule, not %s", p.shown())
	}
	return Never()
}

// group reads what is in parentheses.
func (p *gbnf) group() *Expr {
	at := p.pos
	p.pos++
	if p.depth++; p.depth > maxGroups {
		p.fail(at, "more than %d nested groups", maxGroups)
		return Never()
	}
	e := p.choice()
	p.depth--
	if !p.take(")") {
		p.fail(at, "there is no \")\" for this \"(\"")
	}
	return e
}

// times reads how often an item is repeated; several repetitions may follow each other.
func (p *gbnf) times(e *Expr) *Expr {
	for {
		p.space()
		switch {
		case p.take("*"):
			e = Repeat(e, 0, -1)
		case p.take("+"):
			e = Repeat(e, 1, -1)
		case p.take("?"):
			e = Optional(e)
		case p.next() == '{':
			low, high := p.bounds()
			e = Repeat(e, low, high)
		default:
			return e
		}
	}
}

// bounds reads {m}, {m,}, {,n} or {m,n}.
func (p *gbnf) bounds() (low, high int) {
	at := p.pos
	inside, _, ok := strings.Cut(p.text[p.pos+1:], "}")
	if !ok {
		p.fail(at, "there is no \"}\" for this \"{\"")
		return 0, 0
	}
	p.pos += len(inside) + 2
	first, second, two := strings.Cut(inside, ",")
	number := func(s string, standard int) int {
		s = strings.TrimSpace(s)
		if s == "" && two {
			return standard
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxTimes {
			p.fail(at, "%q must be {m}, {m,}, {,n} or {m,n} with numbers up to %d", "{"+inside[:min(len(inside), 32)]+"}", maxTimes)
		}
		return n
	}
	low = number(first, 0)
	if high = low; two {
		high = number(second, -1)
	}
	if high >= 0 && high < low {
		p.fail(at, "{%d,%d} allows no number", low, high)
	}
	return low, high
}

// check finds rules that are missing or can never end.
func (p *gbnf) check() {
	if r := p.rules["root"]; r == nil || !r.defined {
		p.err = fmt.Errorf("line 1, column 1: there is no rule \"root\", which is the whole text")
		return
	}
	byRule := map[*Rule]*gbnfRule{}
	for _, r := range p.order {
		if byRule[&r.rule] = r; !r.defined {
			p.fail(r.at, "there is no rule %q", r.name)
			return
		}
	}
	for found := true; found; {
		found = false
		for _, r := range slices.Backward(p.order) { // backwards, because rules mostly precede those that they use
			if !r.ends && ends(r.rule.Body, byRule) {
				r.ends, found = true, true
			}
		}
	}
	for _, r := range p.order {
		if !r.ends {
			p.fail(r.at, "the rule %q never ends, because it always contains itself", r.name)
		}
	}
}

// ends reports whether e matches some text, as far as this is known of its rules.
func ends(e *Expr, rules map[*Rule]*gbnfRule) bool {
	each := func(a *Expr) bool { return ends(a, rules) }
	switch e.op {
	case opSequence:
		return !slices.ContainsFunc(e.args, func(a *Expr) bool { return !each(a) })
	case opChoice:
		return slices.ContainsFunc(e.args, each)
	case opRepeat:
		return e.min == 0 || each(e.args[0])
	case opRule:
		return rules[e.rule].ends
	}
	return true
}
