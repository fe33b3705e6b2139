package web

import (
	"bytes"
	"html"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// maxFormula is how far the end of a formula is looked for, in bytes, because every
// beginning looks for one.
const maxFormula = 4 << 10

// formulas are the beginnings and ends of TeX's mathematics. A single $ is none, because
// it is more often money.
var formulas = []struct{ begin, end string }{{`\(`, `\)`}, {`\[`, `\]`}, {"$$", "$$"}}

// formulaEnd returns the end that belongs to the beginning of a text, "" if it has none.
func formulaEnd(text []byte) string {
	for _, f := range formulas {
		if bytes.HasPrefix(text, []byte(f.begin)) {
			return f.end
		}
	}
	return ""
}

// mathematics keeps formulas as they are: in Markdown \( is an escape, _ and * are
// emphasis, and a line that begins with + or - is a list.
type mathematics struct{}

// Extend implements goldmark.Extender.
func (mathematics) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(
		parser.WithBlockParsers(util.Prioritized(mathBlocks{}, 50)),
		parser.WithInlineParsers(util.Prioritized(mathInlines{}, 50)))
	m.Renderer().AddOptions(renderer.WithNodeRenderers(util.Prioritized(mathRenderer{}, 50)))
}

var (
	kindMathBlock  = ast.NewNodeKind("MathBlock")
	kindMathInline = ast.NewNodeKind("MathInline")
)

// mathBlock is a formula that has its lines for itself.
type mathBlock struct {
	ast.BaseBlock
	end    string
	closed bool
}

// Kind implements ast.Node.
func (*mathBlock) Kind() ast.NodeKind { return kindMathBlock }

// Dump implements ast.Node.
func (b *mathBlock) Dump(source []byte, level int) { ast.DumpHelper(b, source, level, nil, nil) }

// mathInline is a formula within a line or several.
type mathInline struct {
	ast.BaseInline
	segments []text.Segment
}

// Kind implements ast.Node.
func (*mathInline) Kind() ast.NodeKind { return kindMathInline }

// Dump implements ast.Node.
func (i *mathInline) Dump(source []byte, level int) { ast.DumpHelper(i, source, level, nil, nil) }

// mathBlocks parses formulas that begin and end with a line. They have no empty line, as
// in TeX, so that text that is still arriving is settled at empty lines.
type mathBlocks struct{}

// Trigger implements parser.BlockParser.
func (mathBlocks) Trigger() []byte { return []byte(`\$`) }

// Open implements parser.BlockParser.
func (mathBlocks) Open(_ ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	line, segment := reader.PeekLine()
	at := pc.BlockOffset()
	if at < 0 || at >= len(line) {
		return nil, parser.NoChildren
	}
	end := formulaEnd(line[at:])
	if end == "" || end == `\)` {
		return nil, parser.NoChildren
	}
	b := &mathBlock{end: end}
	rest := line[at+2:]
	switch i := bytes.Index(rest, []byte(end)); {
	case i >= 0 && (len(bytes.TrimSpace(rest[:i])) == 0 || len(bytes.TrimSpace(rest[i+len(end):])) > 0):
		return nil, parser.NoChildren // empty, or text follows in the same line
	case i >= 0:
		b.closed = true
	case !endsAhead(reader.Source()[segment.Stop:], end):
		return nil, parser.NoChildren
	}
	b.add(reader)
	return b, parser.NoChildren
}

// endsAhead reports whether the end of a formula comes before an empty line.
func endsAhead(source []byte, end string) bool {
	source = source[:min(len(source), maxFormula)]
	i := bytes.Index(source, []byte(end))
	if i < 0 {
		return false
	}
	for line := range bytes.Lines(source[:i]) {
		if len(bytes.TrimSpace(line)) == 0 && line[len(line)-1] == '\n' {
			return false
		}
	}
	return true
}

// add takes the line of the reader.
func (b *mathBlock) add(reader text.Reader) {
	_, segment := reader.PeekLine()
	b.Lines().Append(segment)
	reader.AdvanceToEOL()
}

// Continue implements parser.BlockParser.
func (mathBlocks) Continue(node ast.Node, reader text.Reader, _ parser.Context) parser.State {
	b := node.(*mathBlock)
	line, _ := reader.PeekLine()
	if b.closed || len(bytes.TrimSpace(line)) == 0 {
		return parser.Close
	}
	b.closed = bytes.Contains(line, []byte(b.end))
	b.add(reader)
	return parser.Continue | parser.NoChildren
}

// Close implements parser.BlockParser.
func (mathBlocks) Close(ast.Node, text.Reader, parser.Context) {}

// CanInterruptParagraph implements parser.BlockParser.
func (mathBlocks) CanInterruptParagraph() bool { return true }

// CanAcceptIndentedLine implements parser.BlockParser.
func (mathBlocks) CanAcceptIndentedLine() bool { return false }

// mathInlines parses formulas within a paragraph.
type mathInlines struct{}

// Trigger implements parser.InlineParser.
func (mathInlines) Trigger() []byte { return []byte(`\$`) }

// Parse implements parser.InlineParser.
func (mathInlines) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	workOf(pc).check()
	line, segment := block.PeekLine()
	end := formulaEnd(line)
	if end == "" {
		return nil
	}
	ahead := block.Source()[segment.Start:]
	if ahead = ahead[:min(len(ahead), maxFormula)]; !bytes.Contains(ahead[min(2, len(ahead)):], []byte(end)) {
		return nil // before any segment is kept
	}
	at, place := block.Position()
	formula, skip := &mathInline{}, 2
	for length := 0; length < maxFormula; skip = 0 {
		line, segment := block.PeekLine()
		if line == nil {
			break
		}
		if i := bytes.Index(line[min(skip, len(line)):], []byte(end)); i >= 0 {
			n := skip + i + len(end)
			if n == skip+len(end) && skip == 2 {
				break // empty, as in $$$$
			}
			formula.segments = append(formula.segments, segment.WithStop(segment.Start+n-segment.Padding))
			block.Advance(n)
			return formula
		}
		formula.segments = append(formula.segments, segment)
		length += len(line)
		block.AdvanceLine()
	}
	block.SetPosition(at, place)
	return nil
}

// mathRenderer shows formulas as code, with their marks.
type mathRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (mathRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindMathBlock, func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			writeMath(w, source, "<pre>", node.Lines().Sliced(0, node.Lines().Len()), "</pre>\n")
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(kindMathInline, func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			writeMath(w, source, "", node.(*mathInline).segments, "")
		}
		return ast.WalkSkipChildren, nil
	})
}

func writeMath(w util.BufWriter, source []byte, before string, segments []text.Segment, after string) {
	_, _ = w.WriteString(before + `<code class="math">`)
	for _, s := range segments {
		_, _ = w.WriteString(html.EscapeString(string(s.Value(source))))
	}
	_, _ = w.WriteString("</code>" + after)
}
