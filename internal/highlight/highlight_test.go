package highlight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// never returns a deadline that does not come.
func never() time.Time { return time.Now().Add(time.Hour) }

func joined(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

// show writes spans as text, for tests: class(text).
func show(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		if s.Class == None {
			b.WriteString(s.Text)
		} else {
			fmt.Fprintf(&b, "%s(%s)", s.Class, s.Text)
		}
	}
	return b.String()
}

func TestCode(t *testing.T) {
	for _, x := range []struct{ language, code, want string }{
		{"go", "func f(a int) string { return \"x\" } // c\n", "k(func) nf(f)(a nc(int)) nc(string) { k(return) s(\"x\") } c(// c)\n"},
		{"Python", "def f():\n    return None  # c", "k(def) nf(f)():\n    k(return) m(None)  c(# c)"},
		{"json", `{"a": [1, true, "x"]}`, `{nt("a"): [m(1), m(true), s("x")]}`},
		{"diff", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n", "gd(--- a\n)gi(+++ b\n)gh(@@ -1 +1 @@\n)gd(-x\n)gi(+y\n) z\n"},
		{"html", `<a href="x">y</a>`, `<nt(a) na(href)=s("x")>y</nt(a)>`},
		{"sh", "echo 'a' # c\r\n", "nc(echo) s('a') c(# c\r)\n"},
		{"none", "func f() {}", "func f() {}"},
		{"", "func f() {}", "func f() {}"},
		{"go", "", ""},
		{"go", "\xff\xfe func", "\xff\xfe func"},
	} {
		got := Code(x.language, x.code, never())
		require.Equal(t, x.want, show(got), x.language)
		require.Equal(t, x.code, joined(got))
	}
}

// TestBounds: only the beginning of a long block is highlighted, and nothing after the
// deadline; the beginning has the same classes as in the whole.
func TestBounds(t *testing.T) {
	line := "func f() {}\n"
	long := strings.Repeat(line, 2*MaxBytes/len(line))
	got := Code("go", long, never())
	require.Equal(t, long, joined(got))
	last := got[len(got)-1]
	require.Equal(t, None, last.Class)
	require.Greater(t, len(last.Text), MaxBytes-2*len(line))
	require.Equal(t, Keyword, got[0].Class)
	endless := strings.Repeat("f", 2*MaxBytes)
	require.Equal(t, []Span{{None, endless}}, Code("go", endless, never()))
	require.Equal(t, []Span{{None, line}}, Code("go", line, time.Now().Add(-time.Second)))
}

// TestLanguages: each name has a lexer of chroma's.
func TestLanguages(t *testing.T) {
	for name, lexer := range languages {
		require.Equal(t, strings.ToLower(name), name)
		l := lexers.Get(lexer)
		require.NotNil(t, l, lexer)
		require.Equal(t, lexer, l.Config().Name, "by its own name, not by an alias or the name of a file")
		require.NotNil(t, Code(name, "x", never()))
	}
}

// hostile are pieces of code that may be hard for lexers when repeated many times.
var hostile = []string{"(", "[", "{", "<", "\"", "'", "`", "\\", "/*", "//", "#", "$", "${", "$(", "@", "<!--", "<a ", "a=", "a.", "a:", "<<A\n", "\\\"", "''' ", "\"\"\"", "r\"", "-", "%", " ", "\t", "\n", "a ", "aA", "0", "0x", "1e", "&", "|", "::", "<script>", "<style>", "{{", "[[", "--[[", "=begin\n", "\r", "é", "\x00", "~", "^", "if ", "for ", "def f(", "func (", "class a ", "%w(", "q{", "s/a/", "<?", "?>", "]]>", "- ", "a b\n", "/a"}

// TestHostile: whatever stands in a block, the code comes out as it went in, and the
// deadline is kept to what one rule of a lexer may take.
func TestHostile(t *testing.T) {
	pieces := hostile
	if !testenv.Rest(t, testenv.Full, "most pieces of hostile code") {
		pieces = hostile[:6]
	}
	var slowest time.Duration
	var where string
	seen := map[string]bool{}
	for name, lexer := range languages {
		if seen[lexer] {
			continue
		}
		seen[lexer] = true
		for _, piece := range pieces {
			code := strings.Repeat(piece, MaxBytes/len(piece))
			began := time.Now()
			got := Code(name, code, began.Add(2*time.Millisecond))
			if took := time.Since(began); took > slowest {
				slowest, where = took, fmt.Sprintf("%s %q", lexer, piece)
			}
			require.Equal(t, code, joined(got), "%s %q", lexer, piece)
		}
	}
	t.Logf("slowest with a deadline of 2 ms: %v, %s", slowest, where)
}

// FuzzCode: the texts of the spans are the code.
func FuzzCode(f *testing.F) {
	for name := range languages {
		f.Add(name, "a = \"b\" # c\n<a b='c'>{ d: 1 }</a>\r\n\xff")
	}
	f.Fuzz(func(t *testing.T, language, code string) {
		spans := Code(language, code, time.Now().Add(time.Second))
		require.Equal(t, code, joined(spans))
		for i, s := range spans {
			require.NotEmpty(t, s.Text)
			require.True(t, i == 0 || spans[i-1].Class != s.Class)
		}
	})
}
