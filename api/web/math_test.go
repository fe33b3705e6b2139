package web

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFormulasStayAsTheyAre: what stands between the marks of a formula is not Markdown,
// whatever its characters mean there; money, code and unfinished formulas are none.
func TestFormulasStayAsTheyAre(t *testing.T) {
	for _, formula := range []string{
		`\(a_1 * b_2 * c_3\)`, `\[x^{*} = \frac{a}{b}\]`, `$$\sum_{i=1}^n x_i$$`, `\(a < b & c > d\)`, `$$[a](http://b.c)$$`, "\\(two\nlines\\)",
		"\\[\na\n+ b\n- c\n= d\n\\]", "$$\n# not a title\n> no quote\n\\begin{aligned} a &= b \\\\\\\\ c &= d \\end{aligned}\n$$", "\\[\n    a\n        b\n\\]",
	} {
		for _, around := range [][2]string{{"", ""}, {"Before ", " after."}, {"Before\n", "\nafter."}, {"Before.\n\n", "\n\nAfter."}} {
			source := around[0] + formula + around[1]
			r, err := render(t, source, false)
			require.NoError(t, err)
			m := regexp.MustCompile(`(?s)<code class="math">(.*?)</code>`).FindAllStringSubmatch(r.HTML, -1)
			if strings.Contains(formula, "\n+ b") && around[0] == "Before " {
				continue // a list interrupts a paragraph, so this is no formula
			}
			if strings.Contains(formula, "\n#") && around[0] == "Before " {
				continue // so does a title
			}
			require.Len(t, m, 1, "%q\n%s", source, r.HTML)
			want := formula
			if around[0] == "Before " { // a paragraph has no indents
				want = regexp.MustCompile(`\n +`).ReplaceAllString(want, "\n")
			}
			require.Equal(t, want, strings.TrimSpace(html.UnescapeString(m[0][1])), "%q", source)
		}
	}
	for _, text := range []string{"It costs $5 and *then* $6.", "`\\(x\\)`", "```\n$$\nx\n$$\n```", `\\(x\\)`, "\\[\na\n\nb\n\\]", `an open \(x`, "$$\n\nx", "$$$$", `\(\)`} {
		r, err := render(t, text, false)
		require.NoError(t, err)
		require.NotContains(t, r.HTML, "math", text)
	}
	r, err := render(t, "> \\[\n> a_1\n> + b\n> \\]\n\n- \\(x*y*z\\)\n\n| a |\n|---|\n| \\(p*q*r\\) |\n", false)
	require.NoError(t, err)
	require.Contains(t, r.HTML, "a_1\n+ b\n")
	require.Contains(t, r.HTML, `<code class="math">\(x*y*z\)</code>`)
	require.Contains(t, r.HTML, `<code class="math">\(p*q*r\)</code>`)
}

// TestFormulasThatArrive: a text with formulas that comes in pieces gives the HTML of the
// whole.
func TestFormulasThatArrive(t *testing.T) {
	text := "Let \\(a_1 * b_1\\) be\n\\[\na\n+ b\n\\]\nand\n\n$$\nx * y * z\n$$\n\nThe end.\n"
	want, err := render(t, text, false)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(want.HTML, "math"))
	for piece := 1; piece < len(text); piece++ {
		got, _ := grow(t, text, piece)
		require.Equal(t, want.HTML, got, "pieces of %d", piece)
	}
}
