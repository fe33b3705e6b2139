package jsonschema

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	c "ringmaster/constraint"
)

// Texts inside JSON strings: the quote, the backslash and control characters are escaped,
// and other characters are written as they are. If any character is allowed, it may also
// be written as \uXXXX.

const escapes = "\b\f\n\r\t"

// character matches one character of a list of ranges inside a JSON string; it implements
// constraint.Characters.
func character(pairs ...rune) *c.Expr {
	var plain []rune
	var out []*c.Expr
	add := func(low, high rune) {
		if low <= high {
			plain = append(plain, low, high)
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		low, high := pairs[i], pairs[i+1]
		for r := max(low, 0); r <= min(high, 0x1F); r++ {
			out = append(out, escaped(r))
		}
		for low = max(low, 0x20); ; {
			stop := min(high+1, nextSpecial(low))
			add(low, stop-1)
			if stop > high {
				break
			}
			out = append(out, escaped(stop))
			low = stop + 1
		}
	}
	if len(plain) > 0 {
		out = append(out, c.Runes(plain...))
	}
	return c.Choice(out...)
}

// nextSpecial returns the first character from r on that must be escaped.
func nextSpecial(r rune) rune {
	switch {
	case r <= '"':
		return '"'
	case r <= '\\':
		return '\\'
	}
	return utf8.MaxRune + 1
}

// escaped matches a character that must be escaped.
func escaped(r rune) *c.Expr {
	if r == '"' || r == '\\' {
		return c.Literal("\\" + string(r))
	}
	long := c.Literal(fmt.Sprintf(`\u%04x`, r))
	if i := strings.IndexRune(escapes, r); i >= 0 {
		return c.Choice(c.Literal(`\`+"bfnrt"[i:i+1]), long)
	}
	return long
}

// anyCharacter matches any character in any form.
var anyCharacter = func() *c.Expr {
	hex := func(low, high string) *c.Expr { // from one digit to another, in both cases
		var s c.Set
		for b := low[0]; b <= high[0]; b++ {
			s.Add(b, b)
			if b >= 'A' && b <= 'F' {
				s.Add(b+'a'-'A', b+'a'-'A')
			}
		}
		return c.Bytes(s)
	}
	digit := c.Choice(hex("0", "9"), hex("A", "F"))
	three := c.Sequence(digit, digit, digit)
	code := c.Choice(
		c.Sequence(c.Choice(hex("0", "9"), hex("A", "C"), hex("E", "F")), three),
		c.Sequence(hex("D", "D"), hex("0", "7"), digit, digit),
		c.Sequence(hex("D", "D"), c.Choice(hex("8", "9"), hex("A", "B")), digit, digit, c.Literal(`\u`), hex("D", "D"), hex("C", "F"), digit, digit), // a pair of surrogates
	)
	var simple c.Set
	for _, b := range []byte(`"\/bfnrt`) {
		simple.Add(b, b)
	}
	return c.Choice(
		c.Runes(0x20, '"'-1, '"'+1, '\\'-1, '\\'+1, utf8.MaxRune),
		c.Sequence(c.Literal(`\`), c.Choice(c.Bytes(simple), c.Sequence(c.Literal("u"), code))),
	)
}()

// anyText matches any string.
var anyText = c.Shared("a string", c.Sequence(c.Literal(`"`), anyRest))

// anyRest matches any rest of a string, including the quote.
var anyRest = c.Shared("the rest of a string", c.Sequence(c.Repeat(anyCharacter, 0, -1), c.Literal(`"`)))

// quoted matches one string.
func quoted(s string) *c.Expr {
	var out []*c.Expr
	plain := []byte{'"'} // what comes next and is not escaped
	for _, r := range s {
		if r >= 0x20 && r != '"' && r != '\\' {
			plain = utf8.AppendRune(plain, r)
			continue
		}
		out = append(out, c.Literal(string(plain)), escaped(r))
		plain = nil
	}
	return c.Sequence(append(out, c.Literal(string(append(plain, '"'))))...)
}

// othersWork returns what others takes, in units of a budget.
func othersWork(names []string) int {
	n := 1
	for _, name := range names {
		n += 8 * (1 + len(name))
	}
	return n
}

// others matches any string except the given ones: all that leave the tree of their
// characters, or end before a leaf.
func others(names []string) *c.Expr {
	if len(names) == 0 {
		return anyText
	}
	type branch struct {
		to    map[rune]*branch
		order []rune
		name  bool
	}
	root := &branch{to: map[rune]*branch{}}
	for _, name := range names {
		at := root
		for _, r := range name {
			to, ok := at.to[r]
			if !ok {
				to = &branch{to: map[rune]*branch{}}
				at.to[r] = to
				at.order = append(at.order, r)
			}
			at = to
		}
		at.name = true
	}
	var rest func(p *branch) *c.Expr // after the characters that lead to p, including the quote
	rest = func(p *branch) *c.Expr {
		var out []*c.Expr
		if !p.name {
			out = append(out, c.Literal(`"`))
		}
		for _, r := range p.order {
			out = append(out, c.Sequence(character(r, r), rest(p.to[r])))
		}
		out = append(out, c.Sequence(characterBut(p.order), anyRest))
		return c.Choice(out...)
	}
	return c.Sequence(c.Literal(`"`), rest(root))
}

// characterBut matches any character except runes. If these are ASCII and need no escape,
// all but one byte of it is a rule that every place shares.
func characterBut(runes []rune) *c.Expr {
	var ascii c.Set
	for b := byte(0x20); b < utf8.RuneSelf; b++ {
		if b != '"' && b != '\\' && !slices.Contains(runes, rune(b)) {
			ascii.Add(b, b)
		}
	}
	if slices.ContainsFunc(runes, func(r rune) bool { return r < 0x20 || r >= utf8.RuneSelf || r == '"' || r == '\\' }) {
		return character(without(runes)...)
	}
	return c.Choice(c.Bytes(ascii), otherCharacter)
}

// otherCharacter matches any character that is escaped or not ASCII.
var otherCharacter = c.Shared("a character", character(0, 0x1F, '"', '"', '\\', '\\', utf8.RuneSelf, utf8.MaxRune))

// without returns the ranges of all characters except runes.
func without(runes []rune) []rune {
	var out []rune
	low := rune(0)
	for _, r := range slices.Sorted(slices.Values(runes)) {
		if low < r {
			out = append(out, low, r-1)
		}
		low = r + 1
	}
	if low <= utf8.MaxRune {
		out = append(out, low, utf8.MaxRune)
	}
	return out
}
