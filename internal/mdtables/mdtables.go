// Package mdtables builds tables of Markdown within a budget, and bounds nested blocks.
// It exists because goldmark fills each row up to the columns of the header, so that 64
// KiB of text can ask for millions of cells.
//
// Parse with Options and a Context made of a NewBudget.
package mdtables

import (
	"bytes"
	"fmt"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// The budget of a text, for all of its tables.
const (
	MaxCells = 20_000
	// MaxEscapes bounds the escaped pipes, because goldmark compares each with each.
	MaxEscapes = 2_000
)

// Budget is what the tables of one text may still use.
type Budget struct {
	cells, escapes int
	// Beyond says why a table is shown as text; "" if none is.
	Beyond string
}

// NewBudget returns a full budget.
func NewBudget() *Budget { return &Budget{cells: MaxCells, escapes: MaxEscapes} }

var key = parser.NewContextKey()

// Context returns a context for parsing text within a budget.
func Context(b *Budget) parser.Context {
	pc := parser.NewContext()
	pc.Set(key, b)
	return pc
}

// Options returns the options of a parser with tables. It needs a Context.
func Options() []parser.Option {
	return []parser.Option{
		parser.WithParagraphTransformers(util.Prioritized(transformer{extension.NewTableParagraphTransformer()}, 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	}
}

// transformer turns paragraphs into tables within the budget; a larger one becomes a
// block of plain text.
type transformer struct{ parser.ParagraphTransformer }

// Transform implements parser.ParagraphTransformer.
func (t transformer) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	b := pc.Get(key).(*Budget)
	columns, escapes := 0, 0
	all := node.Lines().Sliced(0, node.Lines().Len())
	for i, segment := range all {
		line := segment.Value(reader.Source())
		escapes += bytes.Count(line, []byte(`\|`))
		if i > 0 && len(bytes.Trim(line, " \t\r\n\f\v|:-")) == 0 {
			inner := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("|")), []byte("|"))
			columns = max(columns, bytes.Count(inner, []byte("|"))+1)
		}
	}
	cells := columns * len(all)
	switch {
	case columns == 0: // no line can separate header and body
		return
	case cells > b.cells:
		b.Beyond = fmt.Sprintf("tables have more than %d cells", MaxCells)
	case escapes > b.escapes:
		b.Beyond = fmt.Sprintf("tables have more than %d escaped pipes", MaxEscapes)
	default:
		b.cells -= cells
		b.escapes -= escapes
		t.ParagraphTransformer.Transform(node, reader, pc)
		return
	}
	plain := ast.NewCodeBlock()
	plain.SetLines(node.Lines())
	node.Parent().ReplaceChild(node.Parent(), node, plain)
}
