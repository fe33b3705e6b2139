package constraint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// words is a vocabulary of words, with a marker and an end.
type words []string

const marker, end = "<mark>", "<end>"

func (w words) Size() int { return len(w) }
func (w words) Bytes(id int32) []byte {
	if id < 0 || int(id) >= len(w) || w[id] == end {
		return nil
	}
	return []byte(w[id])
}
func (w words) Added(id int32) bool {
	return id >= 0 && int(id) < len(w) && (w[id] == end || w[id] == marker)
}
func (w words) IsEnd(id int32) bool { return w[id] == end }

var pieces = func() words {
	w := words{}
	for b := range 256 {
		w = append(w, string([]byte{byte(b)}))
	}
	return append(w, "ab", "abc", "abcd", "b", "cab", "<m", "mark", "漢", "漢字", "\xe6\xbc", "", "  ", "12", "123", marker, end, "true", "\"a", "\":", ", \"")
}()

func compile(t testing.TB, e *Expr) *Grammar {
	t.Helper()
	g, err := Compile(e, NewVocabulary(pieces), nil)
	require.NoError(t, err)
	return g
}

// parsed compiles a grammar in the notation of GBNF.
func parsed(t testing.TB, text string) *Grammar {
	t.Helper()
	e, err := GBNF(text)
	require.NoError(t, err, text)
	return compile(t, e)
}

// newMask returns an empty mask of the tokens of pieces.
func newMask() []uint64 { return make([]uint64, (len(pieces)+63)/64) }

// tokens returns the tokens of a mask.
func tokens(mask []uint64) (ids []int32) {
	for id := range int32(64 * len(mask)) {
		if mask[id/64]>>(id%64)&1 != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// matches reports whether a grammar without special tokens matches a text as a whole.
func matches(g *Grammar, text string) bool {
	m := g.Matcher(pieces, NewWork())
	for i := range len(text) {
		if m.Accept(int32(text[i])) != nil { // the first tokens are the bytes
			return false
		}
	}
	return m.begin(m.effort(context.Background())) == nil && m.state.final
}

// allowed returns the tokens that may come next.
func allowed(m *Matcher) []int32 {
	mask := newMask()
	_ = m.Mask(context.Background(), mask)
	return tokens(mask)
}

var nested = func() *Expr {
	r := &Rule{Name: "list"}
	r.Body = Choice(Literal("a"), Sequence(Literal("["), Use(r), Repeat(Sequence(Literal(","), Use(r)), 0, 3), Literal("]")))
	return Use(r)
}()

var grammars = map[string]*Expr{
	"literal": Literal("abcab"),
	"choice":  Choice(Literal("abc"), Literal("abd"), Empty()),
	"counted": Repeat(Choice(Literal("ab"), Literal("c")), 3, 7),
	"long":    Repeat(Literal("ab"), 1000, 100000),
	"nested":  nested,
	"free":    Sequence(Free("<mark>", "cab"), Optional(Sequence(Literal("<"), Special(int32(pieces.id(marker))), Literal("ab")))),
	"runes":   Sequence(Repeat(Runes('a', 'z', '漢', '漢'), 2, 4), Literal("!")),
}

func (w words) id(text string) int { return slices.Index(w, text) }

// Walks of random allowed tokens: a mask has exactly the tokens that Accept takes, and
// the end where the grammar ends.
func TestMaskIsWhatIsAccepted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, e := range grammars {
		g := compile(t, e)
		for range 20 {
			m := g.Matcher(pieces, NewWork())
			text := ""
			for range 30 {
				ids := allowed(m)
				want := []int32{}
				for id := range int32(len(pieces)) {
					one := *m
					switch {
					case pieces.IsEnd(id):
						if m.state.final {
							want = append(want, id)
						}
					case one.Accept(id) == nil:
						want = append(want, id)
					}
				}
				require.Equal(t, want, append([]int32{}, ids...), "%s after %q", name, text)
				if len(ids) == 0 {
					require.Fail(t, "a dead end", "%s after %q", name, text)
				}
				id := ids[r.IntN(len(ids))]
				if pieces.IsEnd(id) {
					break
				}
				require.NoError(t, m.Accept(id))
				text += pieces[id]
			}
		}
	}
	m := compile(t, Literal("ab")).Matcher(pieces, NewWork())
	require.ErrorIs(t, m.Accept(int32(pieces.id("b"))), ErrNotAllowed)
	require.ErrorIs(t, m.Accept(-1), ErrNotAllowed)
	require.ErrorIs(t, m.Accept(1<<30), ErrNotAllowed)
}

func TestTexts(t *testing.T) {
	for _, tt := range []struct {
		grammar, yes, no string // texts with spaces between them
	}{
		{"literal", "abcab", "abca abcabc _"},
		{"choice", "abc abd", "ab abcd"},
		{"counted", "ccc ababab cccccccc", "cc cccccccccc ababa"},
		{"nested", "a [a] [[a],a] [a,a,a,a]", "[] [a [a,a,a,a,a] aa"},
		{"free", "x <mar ca acb", "<mark> xcaby"},
		{"runes", "ab! 漢z! abcd!", "a! abcde! ä漢!"},
	} {
		g := compile(t, grammars[tt.grammar])
		for _, text := range strings.Fields(tt.yes) {
			want := text != "cccccccc"
			require.Equal(t, want, matches(g, text), "%s: %q", tt.grammar, text)
		}
		for _, text := range strings.Fields(tt.no) {
			require.False(t, matches(g, text), "%s: %q", tt.grammar, text)
		}
	}
	long := compile(t, grammars["long"])
	require.True(t, matches(long, strings.Repeat("ab", 5000)), "more states than are kept")
	require.False(t, matches(long, strings.Repeat("ab", 999)))
}

// Grammars that could be followed forever, or are too large, are refused.
func TestRefused(t *testing.T) {
	left := &Rule{Name: "left"}
	left.Body = Choice(Sequence(Use(left), Literal("a")), Literal("b"))
	_, err := Compile(Use(left), NewVocabulary(pieces), nil)
	require.ErrorContains(t, err, "left refers to itself")

	hidden := &Rule{Name: "hidden"}
	hidden.Body = Sequence(Optional(Literal("a")), Repeat(Literal("b"), 0, -1), Use(hidden))
	_, err = Compile(Use(hidden), NewVocabulary(pieces), nil)
	require.ErrorContains(t, err, "hidden refers to itself")

	_, err = Compile(Repeat(Optional(Literal("a")), 0, -1), NewVocabulary(pieces), nil)
	require.ErrorContains(t, err, "repeats what may be empty")

	big := Literal(strings.Repeat("a", 1<<16))
	_, err = Compile(Sequence(big, big, big, big, big, big, big, big, big, big, big, big, big, big, big, big, big), NewVocabulary(pieces), nil)
	require.ErrorIs(t, err, ErrTooLarge)
}

// Nesting is bounded: beyond the bound a grammar allows no further bracket, and an answer
// can still be closed.
func TestDepthIsBounded(t *testing.T) {
	g := compile(t, nested)
	m := g.Matcher(pieces, NewWork())
	open, depth := int32('['), 0
	for m.Accept(open) == nil {
		depth++
		require.Less(t, depth, 10000)
	}
	require.Greater(t, depth, 100)
	require.NoError(t, m.Accept(int32('a')))
	for range depth {
		require.NoError(t, m.Accept(int32(']')))
	}
	require.True(t, m.state.final)
}

func TestRunes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	edges := []rune{0, 1, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}
	for range 60 {
		low, high := edges[r.IntN(len(edges))]+rune(r.IntN(3))-1, edges[r.IntN(len(edges))]+rune(r.IntN(70))-35
		e := Runes(low, high)
		if e.IsNever() {
			_, err := Compile(e, NewVocabulary(pieces), nil)
			require.ErrorIs(t, err, ErrNothing)
			continue
		}
		g := compile(t, e)
		for _, c := range append([]rune{low, high, low - 1, high + 1, rune(r.IntN(0x110000))}, edges...) {
			if !utf8.ValidRune(c) {
				continue
			}
			require.Equal(t, c >= low && c <= high, matches(g, string(c)), "%#x in %#x..%#x", c, low, high)
		}
		require.False(t, matches(g, "\xed\xa0\x80"), "a surrogate")
		require.False(t, matches(g, "\xff"))
	}
}

func TestRegexp(t *testing.T) {
	texts := []string{"", "a", "ab", "abc", "b", "xaby", "aaaa", "12", "a1", "A", "é", "漢", "a\nb", "-", "2024-02-29", strings.Repeat("a", 40)}
	for _, pattern := range []string{"a", "^a", "a$", "^a$", "^(a|b)$", "^a|b$", "^a{2,4}$", "a+b?", "[^a]", "^[a-z]{3,}$", `^\d+$`, `\w\d`, "(?i)^a$", "^.$", "^(ab)*$", "^(a*)*$", `^\d{4}-\d\d-\d\d$`, "^\\p{L}$", "^$", "x|"} {
		for _, whole := range []bool{false, true} {
			e, err := Regexp(pattern, whole, Runes, nil)
			require.NoError(t, err, pattern)
			g := compile(t, e)
			re := regexp.MustCompile(pattern)
			if whole {
				re = regexp.MustCompile("^(?:" + pattern + ")$")
			}
			for _, text := range texts {
				require.Equal(t, re.MatchString(text), matches(g, text), "%q, whole %v: %q", pattern, whole, text)
			}
		}
	}
	for _, pattern := range []string{"(", "(?=a)", `\bfoo`, "a^b", strings.Repeat("a", maxPattern+1), "(a{900}){900}"} {
		_, err := Regexp(pattern, false, Runes, nil)
		require.Error(t, err, fmt.Sprintf("%.20s", pattern))
	}
}
