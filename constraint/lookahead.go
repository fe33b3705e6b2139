package constraint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// lookahead is a group (?=...) or (?!...) of a regular expression.
type lookahead struct {
	pattern string
	not     bool
}

// lookName begins the names of the empty groups that stand for lookaheads.
const lookName = "lookahead"

// cutLookaheads replaces the lookaheads of a regular expression by empty groups, which
// RE2's syntax has, and \uXXXX of ECMAScript by \x{XXXX}.
func cutLookaheads(pattern string) (rest string, looks []lookahead, err error) {
	var out strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		switch ch := pattern[i]; {
		case ch == '\\' && i+1 < len(pattern):
			if code, n := ecmaCode(pattern[i+1:]); n > 0 {
				fmt.Fprintf(&out, `\x{%s}`, code)
				i += n
				continue
			}
			out.WriteString(pattern[i : i+2])
			i++
		case class:
			class = ch != ']'
			if ch == '[' && !strings.HasPrefix(pattern[i:], "[:") { // RE2 would take some for names of classes
				out.WriteByte('\\')
			}
			out.WriteByte(ch)
		case ch == '[':
			class = true
			out.WriteByte(ch)
			for _, first := range []string{"^", "]"} { // a bracket that comes first is no end
				if strings.HasPrefix(pattern[i+1:], first) {
					if first == "]" {
						out.WriteByte('\\')
					}
					out.WriteString(first)
					i++
				}
			}
		case strings.HasPrefix(pattern[i:], "(?=") || strings.HasPrefix(pattern[i:], "(?!"):
			end := groupEnd(pattern[i:])
			if end < 0 {
				return "", nil, errors.New("a lookahead has no end")
			}
			fmt.Fprintf(&out, "(?P<%s%d>)", lookName, len(looks))
			looks = append(looks, lookahead{pattern[i+3 : i+end], pattern[i+2] == '!'})
			i += end
		case strings.HasPrefix(pattern[i:], "(?<=") || strings.HasPrefix(pattern[i:], "(?<!"):
			return "", nil, errors.New("look-behind is not regular in one direction and is not supported")
		default:
			out.WriteByte(ch)
		}
	}
	return out.String(), looks, nil
}

// ecmaCode reads uXXXX or u{X...}; n is its length, 0 for something else.
func ecmaCode(s string) (code string, n int) {
	switch {
	case s[0] != 'u':
	case strings.HasPrefix(s, "u{"):
		if end := strings.IndexByte(s, '}'); end > 2 && end < 9 && isHex(s[2:end]) {
			return s[2:end], end + 1
		}
	case len(s) >= 5 && isHex(s[1:5]):
		return s[1:5], 5
	}
	return "", 0
}

func isHex(s string) bool {
	_, err := strconv.ParseUint(s, 16, 32)
	return err == nil
}

// groupEnd returns the index of the parenthesis that closes the group at the start of s,
// -1 for none.
func groupEnd(s string) int {
	depth, class := 0, false
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case ch == '\\':
			i++
		case class:
			class = ch != ']'
		case ch == '[':
			class = true
			for _, first := range []string{"^", "]"} {
				if strings.HasPrefix(s[i+1:], first) {
					i++
				}
			}
		case ch == '(':
			depth++
		case ch == ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
