package web

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"ringmaster/internal/highlight"
	"ringmaster/internal/mdtables"
)

// MaxMarkdown is the longest text that is rendered at once, in bytes.
const MaxMarkdown = 64 << 10

// Rendered is a text of Markdown as HTML that is safe to show.
type Rendered struct {
	HTML string `json:"html"` // of the settled part
	// Settled is the length of the settled part, which later text does not change, in
	// UTF-16 code units as JavaScript counts. If the text is complete, all of it is
	// settled.
	Settled int `json:"settled"`
	// Open is the HTML of the rest, as if the text ended here.
	Open string `json:"open"`
	// InCode: the text ends within a block of code that Open shows; the text that follows
	// belongs to it.
	InCode bool `json:"in_code"`
	// Note says why text, or a part of it, is shown as it is; "" if all is rendered.
	Note string `json:"note,omitempty"`
}

// Render renders Markdown (CommonMark with tables, strikethrough, bare links, and
// formulas in \( \), \[ \] and $$ as they are). With
// partial, more text may follow. HTML in the text is shown as text; an image becomes a
// link. Scripts, styles, frames, and links to anything but web and mail are removed,
// whatever the parser made of them. A text that takes too long, a table with too many
// cells and other things that would grow without bound are shown as text, and Note says
// why. Calls may be concurrent. The only errors are those of a text that is too long or
// too deeply nested, and the cause of the end of ctx.
func Render(ctx context.Context, source string, partial bool) (Rendered, error) {
	return renderIn(ctx, source, partial, maxTime, maxHighlighting)
}

// renderIn is Render with other bounds of its time.
func renderIn(ctx context.Context, source string, partial bool, all, highlighting time.Duration) (Rendered, error) {
	if len(source) > MaxMarkdown {
		return Rendered{}, fmt.Errorf("the text has %d bytes; at most %d are rendered at once", len(source), MaxMarkdown)
	}
	end, inCode := len(source), false
	if partial {
		end, inCode = settled(source)
	}
	r := Rendered{InCode: inCode}
	w, cancel := newWork(ctx, all, highlighting)
	defer cancel()
	var err error
	if r.HTML, err = w.safe(source[:end]); err != nil {
		return Rendered{}, err
	}
	if r.Open, err = w.safe(source[end:]); err != nil {
		return Rendered{}, err
	}
	r.Note = cmp.Or(w.unmarked, w.tables.Beyond)
	for _, c := range source[:end] {
		r.Settled += max(1, utf16.RuneLen(c))
	}
	return r, nil
}

// safe returns the safe HTML of a text.
func (w *work) safe(source string) (string, error) {
	if strings.TrimSpace(source) == "" {
		return "", nil
	}
	if mdtables.Deep(source) {
		return "", fmt.Errorf("the text has quotes or lists nested more than %d deep", mdtables.MaxNesting)
	}
	var out *output
	err := w.run(func() error {
		pc := mdtables.Context(w.tables)
		pc.Set(workKey, w)
		doc := markdown().Parser().Parse(lines{text.NewReader([]byte(source)), w}, parser.WithContext(pc))
		doc.OwnerDocument().AddMeta(deadline, w.colours)
		rendered := w.output()
		if err := markdown().Renderer().Render(rendered, []byte(source), doc); err != nil {
			return fmt.Errorf("rendering Markdown: %w", err)
		}
		out = w.output()
		return sanitizer().SanitizeReaderToWriter(input{rendered, w}, out)
	})
	if asText(err) {
		w.unmarked = err.Error()
		return "<pre>" + html.EscapeString(source) + "</pre>\n", nil
	}
	if err != nil {
		return "", err
	}
	w.html -= out.Len()
	return out.String(), nil
}

// deadline is the document attribute with the time.Time after which code gets no colours.
const deadline = "deadline"

// settled returns the length of the prefix that later text cannot change (except through
// link definitions and HTML blocks with empty lines), and whether the text ends within a
// fenced block of code. The prefix ends after an empty line or a closed fence. Nothing
// indented may follow, since that may belong to a list.
func settled(source string) (end int, inCode bool) {
	fence, at := "", 0
	after := false // the line before was empty, or closed a fence
	for line := range strings.Lines(source) {
		start := at
		at += len(line)
		body := strings.TrimRight(line, "\r\n")
		words := strings.TrimLeft(body, " ")
		indent := len(body) - len(words)
		mark := fenceMark(words)
		switch {
		case fence != "":
			if mark != "" && indent < 4 && mark[0] == fence[0] && len(mark) >= len(fence) && strings.TrimSpace(words[len(mark):]) == "" {
				fence, after = "", true
			}
			continue
		case strings.TrimSpace(body) == "":
			after = true
			continue
		}
		if after && indent == 0 && body[0] != '\t' && !listMark.MatchString(body) {
			end = start
		}
		after = false
		if mark != "" && indent < 4 {
			fence = mark
		}
	}
	return end, fence != ""
}

// listMark matches the beginning of a list item, which may continue the list before it,
// or of a line that may yet become one.
var listMark = regexp.MustCompile(`^([*+-]|\d{1,9}[.)]?)(\s|$)`)

// fenceMark returns the mark that opens or closes a block of code, "" if a line has none.
func fenceMark(line string) string {
	for _, c := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, c))
		if n >= 3 && (c == "~" || !strings.Contains(line[n:], "`")) {
			return line[:n]
		}
	}
	return ""
}

var markdown = sync.OnceValue(func() goldmark.Markdown {
	m := goldmark.New(goldmark.WithExtensions(mathematics{}, extension.Strikethrough, extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:"}))))
	m.Parser().AddOptions(
		parser.WithInlineParsers(util.Prioritized(guard{}, 0)), // before all others
		parser.WithParagraphTransformers(util.Prioritized(paragraphs{}, 0)))
	m.Parser().AddOptions(mdtables.Options()...)
	m.Renderer().AddOptions(renderer.WithNodeRenderers(
		util.Prioritized(shown{}, 1),
		util.Prioritized(extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), 500)))
	return m
})

// shown renders what the standard renderer would omit or load.
type shown struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (shown) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, rawHTML)
	r.Register(ast.KindHTMLBlock, blockHTML)
	r.Register(ast.KindImage, image)
	r.Register(ast.KindFencedCodeBlock, fenced)
}

// fenced renders a block of code, each part with its class for the style sheet's colours.
func fenced(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.FencedCodeBlock)
	language := string(n.Language(source))
	_, _ = w.WriteString("<pre><code")
	if language != "" {
		fmt.Fprintf(w, ` class="language-%s"`, html.EscapeString(language))
	}
	_, _ = w.WriteString(">")
	until, _ := node.OwnerDocument().Meta()[deadline].(time.Time)
	for _, s := range highlight.Code(language, string(n.Lines().Value(source)), until) {
		code := html.EscapeString(s.Text)
		if s.Class != highlight.None {
			code = `<span class="` + string(s.Class) + `">` + code + "</span>"
		}
		_, _ = w.WriteString(code)
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkContinue, nil
}

// rawHTML shows HTML in a line as text.
func rawHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		s := node.(*ast.RawHTML).Segments
		for i := range s.Len() {
			at := s.At(i)
			_, _ = w.WriteString(html.EscapeString(string(at.Value(source))))
		}
	}
	return ast.WalkSkipChildren, nil
}

// blockHTML shows a block of HTML as text.
func blockHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.HTMLBlock)
	_, _ = w.WriteString("<pre><code>")
	for i := range n.Lines().Len() {
		at := n.Lines().At(i)
		_, _ = w.WriteString(html.EscapeString(string(at.Value(source))))
	}
	if n.HasClosure() {
		_, _ = w.WriteString(html.EscapeString(string(n.ClosureLine.Value(source))))
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkContinue, nil
}

// image renders a link instead of an image, because loading the image would tell its
// server what was asked.
func image(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Image)
	if entering {
		fmt.Fprintf(w, `<a href="%s">`, html.EscapeString(string(util.URLEscape(n.Destination, true))))
		if !n.HasChildren() {
			_, _ = w.WriteString("image")
		}
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("</a>")
	return ast.WalkContinue, nil
}

// classes matches the classes of highlighted code.
var classes = func() *regexp.Regexp {
	var names []string
	for _, c := range highlight.Classes {
		names = append(names, string(c))
	}
	return regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
}()

// sanitizer allows only what the renderer may write.
var sanitizer = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "del",
		"ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(language-[A-Za-z0-9_+#.-]{1,40}|math)$`)).OnElements("code")
	p.AllowAttrs("class").Matching(classes).OnElements("span")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.AllowRelativeURLs(false)
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
})
