package constraint

import (
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lookaheads anywhere mean what they mean in ECMAScript: each text was judged by node.
func TestLookaheads(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{`^(?!\.)(?!.*\.\.)[a-z.]+$`, []string{"a", "a.b", "a."}, []string{"", ".a", "a..b", "A"}},
		{`^(?=.{2,4}$)[a-z]*(\.[a-z]+)?$`, []string{"ab", "a.b", "ab.c"}, []string{"a", "abcde", "abc.d"}},
		{`^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+D)?(T(?=\d)(\d+H)?)?)$`, []string{"P1W", "P1Y", "P1Y2D", "P1DT1H", "PT1H"}, []string{"P", "PT", "P1YT", "P1Y1W"}},
		{`^(?:(?!ab).)*$`, []string{"", "a", "ba", "aac"}, []string{"ab", "cab"}},
		{`^(?=a(?!b))..$`, []string{"aa", "ac"}, []string{"ab", "ba"}},
		{`x(?=y)`, []string{"xy", "axyb"}, []string{"x", "xz", ""}},
		{`x(?!y)`, []string{"x", "xz", "xyx"}, []string{"xy", "y"}},
		{`^(?!admin$)\w+$`, []string{"admins", "a"}, []string{"admin", ""}},
		{`(?=.*\d)(?=.*[a-z])`, []string{"a1", "1a", "--1-a"}, []string{"a", "1", ""}},
		{`^[(?=]+$`, []string{"(?=", "("}, []string{"a"}},
		{`^\u0041\u{1F600}$`, []string{"A😀"}, []string{"u0041", "A"}},
		{`^(?:a|(?=b)b)c$`, []string{"ac", "bc"}, []string{"c", "cc"}},
		{`^[^\]x]$`, []string{"a"}, []string{"]", "x"}},
		{`(?!^)a`, []string{"ba", "aa"}, []string{"", "a", "ab"}},
		{`(?=[^^]*$)a`, []string{"a", "^a"}, []string{"a^", ""}},
		{`(?=[\]^])^.$`, []string{"]", "^"}, []string{"a", ""}},
	} {
		e, err := Intersect([]Condition{{Pattern: tt.pattern}}, 0, -1, Runes, nil)
		require.NoError(t, err, tt.pattern)
		g := compile(t, e)
		for _, text := range append(tt.yes, tt.no...) {
			want := slices.Contains(tt.yes, text)
			require.Equal(t, want, matches(g, text), "%s: %q", tt.pattern, text)
			got, err := Condition{Pattern: tt.pattern}.Matches(text, nil)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s: %q", tt.pattern, text)
		}
	}
	for _, pattern := range []string{`(?<=a)b`, `a\b`, `(?m)^a`, `(?=a`, `(a)\1`, `^(` + strings.Repeat("(?=a)", 100) + `)`} {
		_, err := Intersect([]Condition{{Pattern: pattern}}, 0, -1, Runes, nil)
		require.Error(t, err, pattern)
	}
}

// An intersection matches what all of its parts match, by package regexp, within the
// bounds of its length.
func TestIntersections(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	patterns := []string{`^a`, `b$`, `^[ab]+$`, `a.?b`, `^(a|bc)*$`, `^.{2,3}$`, `c|^b`, `(?i)^A`, `^$|a`, `[^a]`, `é`, `^(ab|a)(b|)$`, `^\w+$`}
	texts := []string{""}
	for range 300 {
		var b strings.Builder
		for range r.IntN(6) {
			b.WriteString([]string{"a", "b", "c", "é", "A", "\n"}[r.IntN(6)])
		}
		texts = append(texts, b.String())
	}
	tried, found := 0, 0
	for range 150 {
		var list []Condition
		for range 1 + r.IntN(3) {
			list = append(list, Condition{Pattern: patterns[r.IntN(len(patterns))], Whole: r.IntN(4) == 0})
		}
		low, high := r.IntN(3), r.IntN(6)-1
		e, err := Intersect(list, low, high, Runes, nil)
		require.NoError(t, err)
		var g *Grammar
		if !e.IsNever() {
			if g, err = Compile(e, NewVocabulary(pieces), nil); err != nil {
				require.ErrorIs(t, err, ErrNothing)
			}
		}
		for _, text := range texts {
			n := len([]rune(text))
			want := n >= low && (high < 0 || n <= high)
			for _, c := range list {
				p := c.Pattern
				if c.Whole {
					p = `^(?:` + p + `)$`
				}
				want = want && regexp.MustCompile(p).MatchString(text)
			}
			tried++
			if want {
				found++
			}
			require.Equal(t, want, g != nil && matches(g, text), "%v %d..%d: %q", list, low, high, text)
		}
	}
	require.Greater(t, found, tried/100)
}

// Conditions with too many states are refused for that, and earlier when the budget ends
// before. What is spent pays for the memory, by the bytes of a unit.
func TestIntersectionsAreBounded(t *testing.T) {
	for _, pattern := range []string{`(a|b)*a(a|b){900}`, `^(?=.*a.{200}$)(?=.*b.{200}$).*$`, strings.Repeat(`(?=.*a)`, 16), `^(?:(?:a{1,30}){1,30})?$`, `^(?!.*(.)(.)(.)a{50})\pL*$`, `(?:(?:(?:a*)*)*)*b{900}`} {
		attempt := func(units int) (spent int, err error) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b := NewBudget(t.Context(), units)
			_, err = Intersect([]Condition{{Pattern: pattern}, {Pattern: `b.{100}$`}}, 0, 1000, Runes, b)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512*(units-b.left)), "%s: %d units", pattern, units)
			return units - b.left, err
		}
		spent, err := attempt(DefaultWork)
		require.ErrorIs(t, err, errManyStates, pattern)
		_, err = attempt(spent / 2)
		require.ErrorIs(t, err, ErrTooMuchWork, pattern)
	}
}
