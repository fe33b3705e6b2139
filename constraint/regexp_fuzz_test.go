package constraint

import (
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzRegexp: an expression is refused, or any choice of allowed tokens writes what
// package regexp matches as a whole. Neither takes long.
func FuzzRegexp(f *testing.F) {
	for _, s := range []string{`a{3,5}b`, `^(a|b)*c$`, `[^\d\s]{2,}|\p{L}+`, `(?i)true|null`, `(?s).*`, `^a|b$`, `(?:x?){3}y??`, `\x00|é{2}|[ -~]`, `a$b`, `\bx`, `(?m)^a$`, `()|(a|)*`} {
		f.Add(s, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	}
	v := NewVocabulary(pieces)
	f.Fuzz(func(t *testing.T, pattern string, choices []byte) {
		e, err := Regexp(pattern, true, Runes, nil)
		if err != nil {
			return
		}
		g, err := Compile(e, v, nil)
		if err != nil {
			return
		}
		judge, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil { // with its context it is larger than Go accepts
			return
		}
		m, text := g.Matcher(pieces, NewWork()), ""
		for i := range min(len(choices), 40) {
			mask := newMask()
			if m.Mask(t.Context(), mask) != nil { // it is given up because of too many ways
				return
			}
			ids := tokens(mask)
			if len(ids) == 0 {
				return
			}
			for _, id := range ids {
				if pieces.IsEnd(id) {
					require.True(t, utf8.ValidString(text), "%q", text)
					require.True(t, judge.MatchString(text), "%q ends %q", pattern, text)
				}
			}
			id := ids[int(choices[i])%len(ids)]
			if pieces.IsEnd(id) {
				return
			}
			require.NoError(t, m.Accept(id))
			text += string(pieces.Bytes(id))
		}
	})
}
