package chatclient

import (
	"fmt"
	"strings"
	"time"

	"github.com/rivo/uniseg"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	xast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"ringmaster/internal/highlight"
	"ringmaster/internal/mdtables"
	"ringmaster/internal/safetext"
)

// leastWidth keeps deeply nested text readable, in columns.
const leastWidth = 20

var markdown = goldmark.New(goldmark.WithExtensions(extension.Strikethrough, extension.TaskList), goldmark.WithParserOptions(mdtables.Options()...))

// maxMarkdown is the longest text that is formatted, in bytes, because the parser takes
// time by the square of the length of some texts. The chat page has the same limit.
const maxMarkdown = 64 << 10

// lines reads for the parser, within mdtables.MaxLooks.
type lines struct {
	text.Reader
	left int
}

// tooDeep is the panic value that leaves the parser, because it cannot be cancelled.
type tooDeep struct{}

// PeekLine implements text.Reader.
func (l *lines) PeekLine() ([]byte, text.Segment) {
	if l.left--; l.left < 0 {
		panic(tooDeep{})
	}
	return l.Reader.PeekLine()
}

// parse returns nil for a text that would take too long.
func parse(source string) (doc ast.Node) {
	if len(source) > maxMarkdown || mdtables.Deep(source) {
		return nil
	}
	defer func() {
		if v := recover(); v != nil && v != (tooDeep{}) {
			panic(v)
		}
	}()
	return markdown.Parser().Parse(&lines{text.NewReader([]byte(source)), mdtables.MaxLooks}, parser.WithContext(mdtables.Context(mdtables.NewBudget())))
}

// render formats Markdown for a terminal of a width in columns; the result ends with a
// line break unless it is empty. A text that would take too long stays as it is.
func render(source string, width int) string {
	doc := parse(source)
	if doc == nil {
		return strings.TrimRight(source, "\n") + "\n"
	}
	r := renderer{src: []byte(source)}
	lines := r.blocks(doc, max(width, leastWidth), true)
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

type renderer struct{ src []byte }

// blocks returns the lines of all children of a node; apart puts an empty line between
// them.
func (r renderer) blocks(parent ast.Node, width int, apart bool) (lines []string) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		block := r.block(n, max(width, leastWidth))
		if apart && len(lines) > 0 && len(block) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, block...)
	}
	return lines
}

// block returns the lines of one block.
func (r renderer) block(n ast.Node, width int) []string {
	switch n := n.(type) {
	case *ast.Heading:
		s := bold
		if n.Level == 1 {
			s |= underline
		}
		return wrap(r.inline(n, s), width)
	case *ast.Paragraph, *ast.TextBlock:
		return wrap(r.inline(n, 0), width)
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return r.code(n)
	case *ast.Blockquote:
		return indent(r.blocks(n, width-2, true), paint("│ ", dim), paint("│ ", dim))
	case *ast.List:
		return r.list(n, width)
	case *ast.ThematicBreak:
		return []string{paint(strings.Repeat("─", min(width, 40)), dim)}
	case *xast.Table:
		return r.table(n)
	case *ast.HTMLBlock:
		return r.raw(n)
	}
	return r.blocks(n, width, true)
}

// raw returns the lines of a block as they are written.
func (r renderer) raw(n ast.Node) []string {
	var lines []string
	for i := range n.Lines().Len() {
		at := n.Lines().At(i)
		lines = append(lines, strings.TrimRight(string(at.Value(r.src)), "\n"))
	}
	return lines
}

// code returns the lines of a block of code. They are not wrapped, so that they can be
// copied.
func (r renderer) code(n ast.Node) []string {
	language := ""
	if f, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(f.Language(r.src))
	}
	source := r.raw(n)
	if len(source) == 0 {
		return nil
	}
	lines := []string{""}
	for _, s := range highlight.Code(language, strings.Join(source, "\n"), time.Now().Add(maxHighlighting)) {
		for i, part := range strings.Split(s.Text, "\n") {
			if i > 0 {
				lines = append(lines, "")
			}
			lines[len(lines)-1] += paint(strings.ReplaceAll(part, "\t", "    "), code|colours[s.Class])
		}
	}
	return lines
}

// maxHighlighting bounds the time for the colours of a block of code.
const maxHighlighting = time.Second

// colours are the colours of code; the terminal's own scheme makes them readable.
var colours = map[highlight.Class]style{
	highlight.Keyword: magenta, highlight.Heading: magenta, highlight.Tag: red, highlight.Deleted: red, highlight.String: green, highlight.Inserted: green,
	highlight.Number: yellow, highlight.Attribute: yellow, highlight.Function: blue, highlight.Comment: dim,
}

func (r renderer) list(n *ast.List, width int) (lines []string) {
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if n.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		space := strings.Repeat(" ", uniseg.StringWidth(mark))
		if len(lines) > 0 && !n.IsTight {
			lines = append(lines, "")
		}
		lines = append(lines, indent(r.blocks(item, width-len(space), !n.IsTight), mark, space)...)
	}
	return lines
}

// indent puts first before the first line and rest before the others.
func indent(lines []string, first, rest string) []string {
	if len(lines) == 0 {
		return []string{strings.TrimRight(first, " ")}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		if i == 0 {
			out[i] = first + l
		} else {
			out[i] = strings.TrimRight(rest+l, " ")
		}
	}
	return out
}

// cell is a cell of a table, with its width in columns.
type cell struct {
	shown string
	width int
}

// table formats a table with columns as wide as their longest cells.
func (r renderer) table(n *xast.Table) []string {
	var rows [][]cell
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []cell
		for c := row.FirstChild(); c != nil; c = c.NextSibling() {
			s := style(0)
			if len(rows) == 0 {
				s = bold
			}
			var one cell
			for _, x := range r.inline(c, s) {
				one.shown += paint(x.text, x.style)
				one.width += uniseg.StringWidth(x.text)
			}
			if len(cells) == len(widths) {
				widths = append(widths, 0)
			}
			widths[len(cells)] = max(widths[len(cells)], one.width)
			cells = append(cells, one)
		}
		rows = append(rows, cells)
	}
	return setTable(rows, widths)
}

// setTable pads the cells to the widths of their columns, and puts a rule below the first
// row.
func setTable(rows [][]cell, widths []int) (lines []string) {
	for i, cells := range rows {
		var b strings.Builder
		for c, x := range cells {
			if c > 0 {
				b.WriteString(paint(" │ ", dim))
			}
			b.WriteString(x.shown + strings.Repeat(" ", widths[c]-x.width))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
		if i == 0 {
			total := 3 * (len(widths) - 1)
			for _, w := range widths {
				total += w
			}
			lines = append(lines, paint(strings.Repeat("─", total), dim))
		}
	}
	return lines
}

// inline returns the spans of a block's text in a style.
func (r renderer) inline(parent ast.Node, s style) (spans []span) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		spans = append(spans, r.span(n, s)...)
	}
	return spans
}

func (r renderer) span(n ast.Node, s style) []span {
	switch n := n.(type) {
	case *ast.Text:
		end := ""
		if n.HardLineBreak() {
			end = "\n"
		} else if n.SoftLineBreak() {
			end = " "
		}
		return []span{{r.text(n) + end, s}}
	case *ast.String:
		return []span{{safetext.Drop(string(n.Value)), s}}
	case *ast.Emphasis:
		if n.Level == 1 {
			return r.inline(n, s|italic)
		}
		return r.inline(n, s|bold)
	case *ast.CodeSpan:
		return r.inline(n, s|code)
	case *xast.Strikethrough:
		return r.inline(n, s|strike)
	case *xast.TaskCheckBox:
		if n.IsChecked {
			return []span{{"[x] ", s}}
		}
		return []span{{"[ ] ", s}}
	case *ast.Link:
		return append(r.inline(n, s|underline), r.target(string(n.Destination))...)
	case *ast.Image:
		return append(r.inline(n, s|underline), r.target(string(n.Destination))...)
	case *ast.AutoLink:
		return []span{{string(n.URL(r.src)), s | underline}}
	case *ast.RawHTML:
		var b strings.Builder
		for i := range n.Segments.Len() {
			at := n.Segments.At(i)
			b.Write(at.Value(r.src))
		}
		return []span{{b.String(), s}}
	}
	return r.inline(n, s)
}

// text returns a run of text without backslashes and with its entities resolved. An
// entity may stand for a control character, so the result is cleaned again.
func (r renderer) text(n *ast.Text) string {
	v := n.Value(r.src)
	if !n.IsRaw() {
		v = util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(v)))
	}
	return safetext.Drop(string(v))
}

// target shows where a link leads, because its text may claim another place.
func (r renderer) target(to string) []span { return []span{{" (" + safetext.Drop(to) + ")", dim}} }
