package main

import (
	"fmt"
	"strings"
)

// tok is a token of the preprocessed source.
type tok struct {
	ws   string // white space before it
	s    string
	kind byte // i identifier, n number, s string, p punctuation, # line of the preprocessor, 0 end
	line int
	file string
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

var puncts = []string{"->*", "<<=", ">>=", "...", "[[", "]]", "::", "->", "++", "--", "<<", "&&", "||", "==", "!=", "<=", ">=",
	"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="}

// number returns the end of the number at i, and the suffix to add: MSL has no
// double, so a literal without a suffix is a float.
func number(src string, s int) (end int, suffix string) {
	i := s
	hex := strings.HasPrefix(src[s:], "0x") || strings.HasPrefix(src[s:], "0X")
	for i < len(src) && (isWord(src[i]) || src[i] == '.' ||
		(src[i] == '+' || src[i] == '-') && !hex && (src[i-1] == 'e' || src[i-1] == 'E')) {
		i++
	}
	if n := src[s:i]; !hex && strings.ContainsAny(n, ".eE") && !strings.ContainsAny(n[len(n)-1:], "fFhHlL") {
		suffix = "f"
	}
	return i, suffix
}

func quoted(src string, i int) int {
	q := src[i]
	for i++; i < len(src) && src[i] != q; i++ {
		if src[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(src))
}

// lex splits the source into tokens; their positions follow the line markers.
func lex(src string) []tok {
	var out []tok
	line, file, i := 1, "?", 0
	bol := true
	for {
		start := i
		for i < len(src) && strings.IndexByte(" \t\r\n", src[i]) >= 0 {
			if src[i] == '\n' {
				line++
				bol = true
			}
			i++
		}
		t := tok{ws: src[start:i], line: line, file: file}
		if i >= len(src) {
			return append(out, t)
		}
		s, c, suffix := i, src[i], ""
		switch {
		case c == '#' && bol:
			for i < len(src) && src[i] != '\n' {
				i++
			}
			t.kind = '#'
			var n int
			var f string
			if m, _ := fmt.Sscanf(src[s:i], "# %d %q", &n, &f); m == 2 {
				line, file = n-1, f
			}
		case isDigit(c) || c == '.' && i+1 < len(src) && isDigit(src[i+1]):
			i, suffix = number(src, i)
			t.kind = 'n'
		case isWord(c):
			for i < len(src) && isWord(src[i]) {
				i++
			}
			t.kind = 'i'
		case c == '"' || c == '\'':
			i = quoted(src, i)
			t.kind = 's'
		default:
			i++
			t.kind = 'p'
			for _, p := range puncts {
				if strings.HasPrefix(src[s:], p) {
					i = s + len(p)
					break
				}
			}
		}
		bol = false
		t.s = src[s:i] + suffix
		out = append(out, t)
	}
}

// match returns the index of the token that closes the bracket at i.
func match(ts []tok, i int) int {
	depth := 0
	for ; i < len(ts); i++ {
		switch ts[i].s {
		case "(", "[", "{":
			depth++
		case "[[":
			depth += 2
		case "]]":
			depth -= 2
		case ")", "]", "}":
			depth--
		}
		if depth <= 0 {
			return i
		}
	}
	return len(ts) - 1
}

// angle returns the index of the > that closes the < at i.
func angle(ts []tok, i int) int {
	depth := 0
	for ; i < len(ts); i++ {
		switch ts[i].s {
		case "<":
			depth++
		case ">":
			depth--
		case "(", "[", "{", "[[":
			i = match(ts, i)
		case ";":
			return len(ts) - 1 // it was a "less than"
		}
		if depth == 0 {
			return i
		}
	}
	return len(ts) - 1
}

// split splits at the commas that are not inside brackets.
func split(ts []tok) [][]tok {
	var out [][]tok
	start := 0
	for i := 0; i < len(ts); i++ {
		switch ts[i].s {
		case "(", "[", "{", "[[":
			i = match(ts, i)
		case "<":
			if j := angle(ts, i); j < len(ts)-1 {
				i = j
			}
		case ",":
			out = append(out, ts[start:i])
			start = i + 1
		}
	}
	if start < len(ts) {
		out = append(out, ts[start:])
	}
	return out
}

// text writes tokens; preprocessor lines stay alone on their line.
func text(ts []tok) string {
	var b strings.Builder
	for i, t := range ts {
		if i > 0 && ts[i-1].kind == '#' && !strings.HasPrefix(strings.TrimLeft(t.ws, " \t\r"), "\n") {
			b.WriteString("\n")
		}
		if t.kind == '#' && i > 0 && !strings.Contains(t.ws, "\n") {
			b.WriteString("\n")
		}
		b.WriteString(t.ws)
		b.WriteString(t.s)
	}
	return b.String()
}

func has(ts []tok, names ...string) bool {
	for _, t := range ts {
		for _, n := range names {
			if t.s == n {
				return true
			}
		}
	}
	return false
}

// lines returns the line breaks in the white space of tokens.
func lines(ts []tok) string {
	n := 0
	for _, t := range ts {
		n += strings.Count(t.ws, "\n")
	}
	return strings.Repeat("\n", n)
}

// code returns the tokens without preprocessor lines and without dropped tokens.
func code(ts []tok) []tok {
	var out []tok
	for _, t := range ts {
		if t.kind != '#' && t.s != "" {
			out = append(out, t)
		}
	}
	return out
}
