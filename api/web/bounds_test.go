package web

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"ringmaster/internal/testenv"
)

// grid is a table with a header of some columns; rows have as few bytes as possible.
func grid(columns, rows int, row string) string {
	return strings.Repeat("|a", columns) + "|\n" + strings.Repeat("|-", columns) + "|\n" + strings.Repeat(row+"\n", rows)
}

// fill cuts or repeats a text so that it has MaxMarkdown bytes.
func fill(text string) string {
	return strings.Repeat(text, 1+MaxMarkdown/len(text))[:MaxMarkdown]
}

// stairs are lists within each other, nested by their indents.
func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	return b.String()
}

// TestAmplification renders texts that the parser, the highlighter or the sanitizer would
// multiply without bound. What exceeds the bounds is shown as text, and the note says
// why.
func TestAmplification(t *testing.T) {
	address := "http://a.example/" + strings.Repeat("x", 30_000)
	for name, c := range map[string]struct{ text, note string }{
		"a table of 800 columns":         {grid(800, 31_000, "a"), "20000 cells"},
		"a table of 2,000 columns":       {grid(2000, 27_000, "a"), "20000 cells"},
		"a table of 16,000 columns":      {grid(16_000, 2, "a"), "20000 cells"},
		"rows of a pipe":                 {grid(800, 31_000, "|"), "20000 cells"},
		"within a quote":                 {"> " + strings.ReplaceAll(grid(800, 10_000, "a"), "\n", "\n> "), "20000 cells"},
		"within a list":                  {"- " + strings.ReplaceAll(grid(800, 10_000, "a"), "\n", "\n  "), "20000 cells"},
		"after a paragraph's first line": {"a\n" + grid(800, 31_000, "a"), "20000 cells"},
		"many tables":                    {strings.Repeat(grid(50, 100, "a")+"\n", 100), "20000 cells"},
		"lines that end as on Windows":   {strings.ReplaceAll(grid(800, 20_000, "a"), "\n", "\r\n"), "20000 cells"},
		"alignments":                     {strings.ReplaceAll(grid(800, 30_000, "a"), "|-", "|:-:"), "20000 cells"},
		"escaped pipes in code":          {grid(10, 1, "a") + strings.Repeat(strings.Repeat("|`\\|`", 10)+"\n", 1250), "2000 escaped pipes"},
		"links to one long address":      {"[a]: " + address + "\n\n" + strings.Repeat("[a]\n\n", 7000), "4194304 bytes"},
		"images of one long address":     {"[a]: " + address + "\n\n" + strings.Repeat("![a]\n\n", 5000), "4194304 bytes"},
		"an address of escapes":          {"[a]: http://" + strings.Repeat("%", 20_000) + "\n\n" + strings.Repeat("[a] ", 8000), "4194304 bytes"},
		"empty lines in deep lists":      {stairs(200) + strings.Repeat("\n", 24_000), "within each other"},
		"empty lines in 60 lists":        {stairs(60) + strings.Repeat("\n", 40_000), "within each other"},
		"empty lines of code in lists":   {stairs(150) + strings.Repeat(" ", 300) + "```\n" + strings.Repeat("\n", 20_000), "within each other"},
		"a table of links":               {"[a]: " + address + "\n\n" + grid(2, 2000, "[a]|[a]"), "4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			source := c.text[:min(len(c.text), MaxMarkdown)]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := render(t, source, false)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			require.Contains(t, r.Note, c.note)
			require.Less(t, len(r.HTML), maxHTML)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
			require.Contains(t, r.HTML, "<pre>")
			require.Contains(t, r.HTML, "a")
		})
	}
}

// TestWithinTheBounds: a large table, long code and many links are rendered as ever, and
// what stands beside a table that is too large, too.
func TestWithinTheBounds(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a large table": {grid(10, 1990, "1|2|3"), "<td>3</td>"},
		"long code":     {"```go\n" + fill("a+b\n")[:60<<10] + "\n```\n", `<code class="language-go">`},
		"many links":    {fill("[a](http://b.c)\n\n")[:60<<10], `<a href="http://b.c"`},
		"lists":         {fill(stairs(12))[:60<<10] + "\n", "<li>a"},
		"loose lists":   {fill(stairs(8) + strings.Repeat("\n\n"+strings.Repeat(" ", 16)+"b", 900))[:60<<10] + "\n", "<p>b</p>"},
		"a paragraph":   {fill("words of a text, *some* in `code`.\n")[:60<<10], "<em>some</em>"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := render(t, c.text, false)
			require.NoError(t, err)
			require.Empty(t, r.Note)
			require.Contains(t, r.HTML, c.want)
		})
	}
	r, err := render(t, "# Title\n\n"+grid(800, 100, "a")+"\n*end*\n", false)
	require.NoError(t, err)
	require.Contains(t, r.HTML, "<h1>Title</h1>\n<pre><code>|a|a|")
	require.Contains(t, r.HTML, "<p><em>end</em></p>")
	r, err = render(t, "end\n\n"+grid(800, 100, "a"), true)
	require.NoError(t, err)
	require.Equal(t, "<p>end</p>\n", r.HTML)
	require.Contains(t, r.Open, "<pre><code>|a|a|")
	require.NotEmpty(t, r.Note, "of either part")
}

// TestSlowTextIsText: a text whose time is over is shown as it is, and one whose request
// has ended is an error.
func TestSlowTextIsText(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSlow)
	w := &work{ctx: ctx, html: maxHTML}
	out, err := w.safe("*<a>*")
	require.NoError(t, err)
	require.Equal(t, "<pre>*&lt;a&gt;*</pre>\n", out)
	require.Contains(t, w.unmarked, "takes more than 1s")
	gone := errors.New("the client has left")
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(gone)
	_, err = Render(ctx, "*a*", false)
	require.ErrorIs(t, err, gone)
}

// TestEachStepEnds: each part of the work that may be long looks whether it has ended.
func TestEachStepEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSlow)
	w := &work{ctx: ctx, html: maxHTML}
	pc := parser.NewContext()
	pc.Set(workKey, w)
	source := text.NewReader([]byte("*a*\n"))
	for name, step := range map[string]func(){
		"blocks":     func() { lines{source, w}.PeekLine() },
		"inlines":    func() { guard{}.Parse(ast.NewParagraph(), source, pc) },
		"paragraphs": func() { paragraphs{}.Transform(ast.NewParagraph(), source, pc) },
		"rendering":  func() { _, _ = w.output().Write([]byte("a")) },
		"HTML":       func() { _, _ = input{strings.NewReader("a"), w}.Read(make([]byte, 1)) },
	} {
		err := (&work{ctx: t.Context()}).run(func() error { step(); return nil })
		require.ErrorIs(t, err, errSlow, name)
	}
	require.PanicsWithValue(t, "a bug", func() { _ = (&work{ctx: t.Context()}).run(func() error { panic("a bug") }) })
}

// hostileBlocks are pieces that together make other costly texts than alone.
var hostileBlocks = []string{"[", "](", "[a]", "[a]: b\n", "*", "_a", "**", "`", "<", "<a ", "<!--", "|", "|-", "\\|", "~~", "(", "\\", "\n> ", "\n- ", "\n1. ", "http://a.b", "www.", "@a.", "```\n", "\n\n", "\n", " ", "\t", "&amp;", "&#", "\n===\n", "\n-|-\n", "<div>\n", "\\(", "\\[\n", "$$", "a"}

// TestHostilePairs renders texts of all pairs of pieces: each is bounded in time and size.
func TestHostilePairs(t *testing.T) {
	size := 1 << 10
	if testenv.At(testenv.Full) {
		size = MaxMarkdown / 4
	}
	for _, a := range hostileBlocks {
		for _, b := range hostileBlocks {
			source := strings.Repeat(a+b, size/len(a+b))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := render(t, source, false)
			runtime.ReadMemStats(&after)
			if err != nil {
				require.ErrorContains(t, err, "nested", "%q", a+b)
				continue
			}
			if r.Note != "" {
				require.Contains(t, r.Note, "table", "%q", a+b)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20), "%q", a+b)
			require.Less(t, len(r.HTML), 64*size, "%q", a+b)
		}
	}
}
