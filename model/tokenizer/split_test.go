package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"
)

// expressions are the three of split.go, as in the model's tokenizer.json, for
// a backtracking engine.
var expressions = []*regexp2.Regexp{
	regexp2.MustCompile(`\p{N}{1,3}`, regexp2.None),
	regexp2.MustCompile(`[一-龥぀-ゟ゠-ヿ]+`, regexp2.None),
	regexp2.MustCompile("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"+
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`+
		`| ?[\p{P}\p{S}]+[\r\n]*`+
		`|\s*[\r\n]+`+
		`|\s+(?!\S)`+
		`|\s+`, regexp2.None),
}

// oracle splits like split, slowly.
func oracle(t testing.TB, s string) []string {
	pieces := [][]rune{[]rune(s)}
	for _, re := range expressions {
		var cut [][]rune
		for _, piece := range pieces {
			done := 0
			m, err := re.FindRunesMatch(piece)
			for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
				if done < m.Index {
					cut = append(cut, piece[done:m.Index])
				}
				done = m.Index + m.Length
				cut = append(cut, piece[m.Index:done])
			}
			require.NoError(t, err)
			if done < len(piece) {
				cut = append(cut, piece[done:])
			}
		}
		pieces = cut
	}
	var out []string
	for _, p := range pieces {
		out = append(out, string(p))
	}
	return out
}

func pieces(s string) []string {
	var out []string
	split(s, func(w string) {
		if w != "" {
			out = append(out, w)
		}
	})
	return out
}

// goClass is the class according to package unicode.
func goClass(r rune) class {
	switch {
	case unicode.Is(unicode.White_Space, r):
		return space
	case unicode.Is(unicode.L, r):
		return letter
	case unicode.Is(unicode.M, r):
		return mark
	case unicode.Is(unicode.N, r):
		return number
	case unicode.Is(unicode.P, r):
		return punct
	case unicode.Is(unicode.S, r):
		return symbol
	}
	return other
}

// comparable reports whether the engine, which uses package unicode's tables,
// classifies all of s as we do.
func comparable(s string) bool {
	for _, r := range s {
		if goClass(r) != classOf(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Our table is newer than package unicode's: it may know characters that Go
// does not, but hardly any that the two classify differently.
func TestClassesAgreeWithPackageUnicode(t *testing.T) {
	var moved []rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.Is(unicode.Cn, r) && !unicode.Is(unicode.Cs, r) && goClass(r) != classOf(r) {
			moved = append(moved, r)
		}
	}
	require.Empty(t, moved, "%+q", moved)
	require.Equal(t, "17.0", unicodeVersion)
	for r, want := range map[rune]class{
		'a': letter, ' ': space, '\u0085': space, '\ufeff': other, '\u200b': other, '\u0301': mark,
		'½': number, '٣': number, '+': symbol, '-': punct, '｜': symbol, '。': punct, '語': letter,
		'\U00016D40': letter, // assigned in Unicode 16
		'\U000323B0': letter, // assigned in Unicode 17
		'\u0378':     other,  // not assigned
	} {
		require.Equal(t, want, classOf(r), "%+q", r)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"Hello, world!", []string{"Hello", ",", " world", "!"}},
		{"don't I'M", []string{"don", "'t", " I", "'M"}},
		{"example.com/a_b", []string{"example", ".com", "/a", "_b"}},
		{"1234567", []string{"123", "456", "7"}},
		{"x 12.5", []string{"x", " ", "12", ".", "5"}},
		// A run of spaces leaves its last one to the word that follows ...
		{"a   b", []string{"a", "  ", " b"}},
		{"a  !", []string{"a", " ", " !"}},
		// ... also a tab or a no-break space, but these only to letters.
		{"a\t\tb", []string{"a", "\t", "\tb"}},
		{"a\u00a0\u00a0b", []string{"a", "\u00a0", "\u00a0b"}},
		{"a\t!", []string{"a", "\t", "!"}},
		// At the end of a piece there is no following word: numbers and Han end
		// the piece before them.
		{"a   1", []string{"a", "   ", "1"}},
		{"a   漢", []string{"a", "   ", "漢"}},
		// Line ends take the preceding white space and stop at the last one.
		{"a \n \n  b", []string{"a", " \n \n", " ", " b"}},
		{"!\r\n\n x", []string{"!\r\n\n", " x"}},
		// Kana marks and signs are not letters.
		{"カ・ナ゛", []string{"カ", "・", "ナ", "゛"}},
		// Controls and invalid bytes begin no match; one of them goes with a word.
		{"\x00\x01\x02 a", []string{"\x00\x01\x02", " a"}},
		{"\x00\x01a", []string{"\x00", "\x01a"}},
		{"\xff\xfe!", []string{"\xff\xfe", "!"}},
		{"e\u0301e", []string{"e\u0301e"}},
		{"1\u0301", []string{"1", "\u0301"}},
	} {
		require.Equal(t, c.want, pieces(c.text), "%+q", c.text)
		if comparable(c.text) {
			require.Equal(t, c.want, oracle(t, c.text), "%+q (the oracle)", c.text)
		}
	}
}

// alphabet has several characters of every kind that the expressions
// distinguish.
var alphabet = []rune("aZßǅ語あー・゛゠龥龦09٣½Ⅷ'._-+<｜。 \t\r\n\v\u00a0\u0085\u3000\u2028\u0301\u0e31\u200d\ufeff\x00\u007f\u0378😀🏽")

func TestSplitEqualsTheExpressions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 20000 {
		var b strings.Builder
		for range 1 + r.IntN(14) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		require.Equal(t, oracle(t, b.String()), pieces(b.String()), "%+q", b.String())
	}
	for _, s := range samples(t) {
		if comparable(s.Text) {
			require.Equal(t, oracle(t, s.Text), pieces(s.Text), "%+q", s.Text)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := pieces(s)
		require.Equal(t, s, strings.Join(got, ""))
		if len(s) < 1000 && comparable(s) {
			if s == "" {
				return
			}
			require.Equal(t, oracle(t, s), got)
		}
	})
}
