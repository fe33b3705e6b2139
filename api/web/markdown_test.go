package web

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/highlight"
)

func TestRender(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "  \n", ""},
		{"a paragraph", "Hello *wörld* & `a<b`", "<p>Hello <em>wörld</em> &amp; <code>a&lt;b</code></p>\n"},
		{"code", "```go\nfunc f() {}\n```", "<pre><code class=\"language-go\"><span class=\"k\">func</span> <span class=\"nf\">f</span>() {}\n</code></pre>\n"},
		{"code of a language with attributes", "~~~Python title=x\n'<b>'\n~~~", "<pre><code class=\"language-Python\"><span class=\"s\">&#39;&lt;b&gt;&#39;</span>\n</code></pre>\n"},
		{"code of no language", "```\nfunc f() {}\n```", "<pre><code>func f() {}\n</code></pre>\n"},
		{"indented code", "    func f() {}", "<pre><code>func f() {}\n</code></pre>\n"},
		{"code in a list", "- a\n  ```go\n  return 1\n  ```", "<ul>\n<li>a\n<pre><code class=\"language-go\"><span class=\"k\">return</span> <span class=\"m\">1</span>\n</code></pre>\n</li>\n</ul>\n"},
		{"no class that is not ours", "<span class=\"k\">a</span>", "<p>&lt;span class=&#34;k&#34;&gt;a&lt;/span&gt;</p>\n"},
		{"a table", "|a|b|\n|-|-:|\n|1|2|", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>\n"},
		{"a list from 3", "3. c\n4. d", "<ol start=\"3\">\n<li>c</li>\n<li>d</li>\n</ol>\n"},
		{"a link", "[a](https://a.example/?b=1&c=2)", "<p><a href=\"https://a.example/?b=1&amp;c=2\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a</a></p>\n"},
		{"HTML in a line is text", "a <b onclick=x()>b</b>", "<p>a &lt;b onclick=x()&gt;b&lt;/b&gt;</p>\n"},
		{"a block of HTML is text", "<script>alert(1)</script>", "<pre><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>\n"},
		{"an image is a link", "![a cat](https://a.example/cat.png)", "<p><a href=\"https://a.example/cat.png\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a cat</a></p>\n"},
		{"no script in a link", "[a](javascript:alert(1))", "<p>a</p>\n"},
		{"nor in an image", "![a](javascript:alert(1))", "<p>a</p>\n"},
		{"nor data", "[a](data:text/html;base64,PHNjcmlwdD4=)", "<p>a</p>\n"},
		{"nor an address of this server", "[a](/cluster)", "<p>a</p>\n"},
		{"no class but a language", "```a\"b<c\nx\n```", "<pre><code>x\n</code></pre>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := render(t, c.text, false)
			require.NoError(t, err)
			require.Equal(t, c.want, r.HTML)
			require.Empty(t, r.Open)
			require.Equal(t, len(utf16.Encode([]rune(c.text))), r.Settled)
		})
	}
}

// TestRenderBounds checks that a text that is too long or too deep is refused.
func TestRenderBounds(t *testing.T) {
	_, err := render(t, strings.Repeat("a", MaxMarkdown+1), false)
	require.ErrorContains(t, err, "65537 bytes; at most 65536")
	for _, mark := range []string{"> ", "- ", ">", "1. ", "- > "} {
		_, err = render(t, strings.Repeat(mark, 100)+"x", false)
		require.ErrorContains(t, err, "nested more than 32 deep", mark)
	}
	for _, text := range []string{strings.Repeat("-", 200), strings.Repeat("* ", 200), strings.Repeat("a", MaxMarkdown)} {
		_, err = render(t, text, true)
		require.NoError(t, err)
	}
}

// TestRenderHostile renders long texts that are made to be slow; each must end within the
// test's time.
func TestRenderHostile(t *testing.T) {
	for _, piece := range []string{"[", "![", "](", "[a](", "[a](b", "[a][b]", "*", "_", "**a ", "*a_ ", "`", "`a``", "<", "<a ", "&", "|", "a|", "\n|", "~~", "[a]: ", "(", "\\", "\n> ", "\n- ", "http://", "www.", "<!--", "```\n", "\n\n- a", "@a."} {
		text := strings.Repeat(piece, MaxMarkdown/2/len(piece))
		for _, partial := range []bool{false, true} {
			_, err := render(t, text, partial)
			if err != nil {
				require.ErrorContains(t, err, "nested", "%q", piece)
			}
		}
	}
}

func TestSettled(t *testing.T) {
	for _, c := range []struct {
		name, settled, open string
		code                bool
	}{
		{name: "a paragraph may continue", open: "a\nb"},
		{name: "one that has ended", settled: "a\n\n", open: "b"},
		{name: "three", settled: "a\n\nb\n\n", open: "c\n"},
		{name: "a list may continue after an empty line", settled: "x\n\n", open: "y\n- a\n\n- b"},
		{name: "and what is indented belongs to it", open: "- a\n\n  b"},
		{name: "a paragraph after a list", settled: "- a\n\n- b\n\n", open: "c"},
		{name: "code", settled: "a\n\n", open: "```\nb\n\nc", code: true},
		{name: "code that has ended", settled: "```\nb\n\nc\n```\n", open: "d"},
		{name: "a shorter mark does not end it", open: "````\nb\n```\n\nc", code: true},
		{name: "nor another one", open: "~~~\nb\n```\n\nc", code: true},
		{name: "nor one with words", open: "```\nb\n``` c\n\nd", code: true},
		{name: "code in a line", settled: "a ``` b\n\n", open: "c"},
		{name: "a mark with ticks after it opens nothing", settled: "``` a`\n\n", open: "c"},
		{name: "lines that end as on Windows", settled: "a\r\n\r\n", open: "b"},
		{name: "an indented line after a paragraph", open: "a\n\n    b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			end, code := settled(c.settled + c.open)
			require.Equal(t, c.settled, (c.settled + c.open)[:end])
			require.Equal(t, c.code, code)
		})
	}
}

// grow renders a text as the page does while it comes, in pieces of some length, and
// returns all HTML and how many bytes were rendered.
func grow(t *testing.T, text string, piece int) (html string, rendered int) {
	at := 0
	for end := 0; end < len(text); {
		end = min(len(text), end+max(piece, (end-at)/4))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end++
		}
		r, err := render(t, text[at:end], true)
		require.NoError(t, err)
		rendered += end - at
		html += r.HTML
		units := r.Settled
		for units > 0 {
			c, n := utf8.DecodeRuneInString(text[at:])
			units -= max(1, utf16.RuneLen(c))
			at += n
		}
	}
	r, err := render(t, text[at:], false)
	require.NoError(t, err)
	return html + r.HTML, rendered
}

const document = "# Title\n\nA paragraph with *words* and `code`,\nin two lines. 🎪\n\n- one\n- two\n\n  more of two\n\nAnd then:\n\n```go\nfunc a() {\n\n}\n```\nAfter it.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n> words\n\n1. x\n2. y\n\nThe end.\n"

// TestRenderGrowing checks that a text that comes in pieces gives the HTML of the
// whole, whatever the pieces.
func TestRenderGrowing(t *testing.T) {
	want, err := render(t, document, false)
	require.NoError(t, err)
	for piece := 1; piece <= len(document); piece += 1 + piece/8 {
		got, _ := grow(t, document, piece)
		require.Equal(t, want.HTML, got, "pieces of %d", piece)
	}
}

// TestRenderGrowingIsLinear checks that the text rendered while one comes is a
// multiple of its length: of many blocks as of a single long one.
func TestRenderGrowingIsLinear(t *testing.T) {
	for _, text := range []string{
		strings.Repeat(document, 40), "```\n" + strings.Repeat("a line of code\n\n", 1500), strings.Repeat("- item\n\n", 2000), strings.Repeat("word ", 5000),
	} {
		_, rendered := grow(t, text, 200)
		require.Less(t, rendered, 8*len(text))
	}
}

var (
	element   = regexp.MustCompile(`</?([a-z0-9]+)([^>]*)>`)
	attribute = regexp.MustCompile(`^( (class="(language-[\w+#.-]+|math)"|class="(k|nc|nf|nt|na|s|m|c|gi|gd|gh)"|start="\d+"|align="(left|right|center)"|href="(https?:|mailto:)[^"]*"|rel="nofollow noreferrer( noopener)?"|target="_blank"))*( ?/)?$`)
	allowed   = regexp.MustCompile(`^(p|br|hr|h[1-6]|blockquote|pre|code|em|strong|del|ul|ol|li|table|thead|tbody|tr|th|td|a|span)$`)
)

// FuzzRender looks for HTML that is not allowed.
func FuzzRender(f *testing.F) {
	for _, s := range []string{document, "<img src=x onerror=alert(1)>", "[a](java\tscript:x)", "[x](<javascript:a>)", "<a href='javascript:a'>", "![a](\"onerror=\"x)", "```\"><script>\n", "<https://a\"b>", "[a]: javascript:b\n[a]", "&#x6a;avascript:x", "<svg/onload=x>", "a@b.c", "www.a.b/\"x", "\x00<b>", "|<i>|\n|-|\n", "\\(<a>\\) $$\n<b>\n$$ \\[\n"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, partial bool) {
		r, err := render(t, text, partial)
		if err != nil {
			return
		}
		if utf8.ValidString(text) {
			require.LessOrEqual(t, r.Settled, len(utf16.Encode([]rune(text))))
		}
		for _, html := range []string{r.HTML, r.Open} {
			left := html
			for _, m := range element.FindAllStringSubmatch(html, -1) {
				require.Regexp(t, allowed, m[1], html)
				require.Regexp(t, attribute, m[2], html)
			}
			left = element.ReplaceAllString(left, "")
			require.NotContains(t, left, "<", html)
		}
	})
}

// TestRenderGrowingCode: a block of code that comes in pieces has the colours of the
// whole, from its first words on, and beyond the bound none.
func TestRenderGrowingCode(t *testing.T) {
	r, err := render(t, "```go\nfunc a() {\n\treturn \"x", true)
	require.NoError(t, err)
	require.True(t, r.InCode)
	require.Contains(t, r.Open, `<span class="k">func</span> <span class="nf">a</span>`)
	require.Contains(t, r.Open, `<span class="k">return</span>`)

	text := "```go\n" + strings.Repeat("return 1 // one\n", 2*highlight.MaxBytes/16) + "```\n"
	whole, err := render(t, text, false)
	require.NoError(t, err)
	n := strings.Count(whole.HTML, `class="k"`)
	require.InDelta(t, highlight.MaxBytes/16, n, 1)
	cut, err := render(t, text[:3*len(text)/4], true)
	require.NoError(t, err)
	require.Equal(t, n, strings.Count(cut.Open, `class="k"`), "what has a colour keeps it")
}

// TestColours: every class has a colour in both schemes, and each has a contrast of 4.5
// with the background of code, as WCAG demands.
func TestColours(t *testing.T) {
	sheet, err := files.ReadFile("files/style.css")
	require.NoError(t, err)
	light, dark, ok := strings.Cut(string(sheet), "@media (prefers-color-scheme: dark)")
	require.True(t, ok)
	dark, rules, ok := strings.Cut(dark, "}\n}")
	require.True(t, ok)
	for scheme, variables := range map[string]string{"light": light, "dark": dark} {
		value := func(name string) [3]float64 {
			m := regexp.MustCompile(`--` + name + `: #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2});`).FindStringSubmatch(variables)
			require.NotNil(t, m, "%s: --%s", scheme, name)
			var out [3]float64
			for i := range out {
				n, err := strconv.ParseUint(m[1+i], 16, 8)
				require.NoError(t, err)
				out[i] = float64(n) / 255
			}
			return out
		}
		back := luminance(value("code"))
		for _, c := range highlight.Classes {
			m := regexp.MustCompile(`(?m)^pre \.` + string(c) + ` \{ color: var\(--([a-z]+)\); \}$`).FindStringSubmatch(rules)
			require.NotNil(t, m, "class %s has no rule", c)
			fore := luminance(value(m[1]))
			require.GreaterOrEqual(t, (max(back, fore)+.05)/(min(back, fore)+.05), 4.5, "%s: %s", scheme, c)
		}
	}
}

// luminance returns WCAG's relative luminance of a colour in sRGB.
func luminance(c [3]float64) float64 {
	for i, v := range c {
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}
