package constraint

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal reads a text in quotes.
func (p *gbnf) literal() *Expr {
	at := p.pos
	p.pos++
	var b strings.Builder
	for {
		switch p.next() {
		case 0, '\n':
			p.fail(at, "this text has no closing quote")
			return Never()
		case '"':
			p.pos++
			return Literal(b.String())
		}
		b.WriteRune(p.character())
	}
}

// class reads the characters in brackets.
func (p *gbnf) class() *Expr {
	at := p.pos
	p.pos++
	not := p.take("^")
	var pairs []rune
	for !p.take("]") {
		if c := p.next(); c == 0 || c == '\n' {
			p.fail(at, "there is no \"]\" for this \"[\"")
			return Never()
		}
		from := p.pos
		low := p.character()
		high := low
		if rest := p.text[p.pos:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' && rest[1] != '\n' {
			p.pos++
			high = p.character()
		}
		if high < low {
			p.fail(from, "the range goes from %q down to %q", low, high)
			return Never()
		}
		pairs = append(pairs, low, high)
	}
	if not {
		pairs = complement(pairs)
	}
	if len(pairs) == 0 {
		p.fail(at, "this class has no character")
	}
	return Runes(pairs...)
}

// complement returns the ranges of all characters that are in none of pairs.
func complement(pairs []rune) (out []rune) {
	type span struct{ low, high rune }
	spans := make([]span, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		spans = append(spans, span{pairs[i], pairs[i+1]})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.low - b.low) })
	next := rune(0)
	for _, s := range spans {
		if s.low > next {
			out = append(out, next, s.low-1)
		}
		next = max(next, s.high+1)
	}
	if next <= utf8.MaxRune {
		out = append(out, next, utf8.MaxRune)
	}
	return out
}

// character reads a character of a text or a class.
func (p *gbnf) character() rune {
	at := p.pos
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	if r != '\\' {
		return r
	}
	c := p.next()
	p.pos++
	if i := strings.IndexByte(`nrt\"[]-^`, c); c != 0 && i >= 0 {
		return []rune("\n\r\t\\\"[]-^")[i]
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 && p.pos+digits <= len(p.text) {
		if v, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
			p.pos += digits
			return rune(v)
		}
	}
	p.fail(at, "%q is no character", p.text[at:min(at+2+digits, len(p.text))])
	return utf8.RuneError
}
