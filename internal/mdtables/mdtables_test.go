package mdtables

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	xast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// cells parses a text and counts the cells of its tables.
func cells(t *testing.T, source string) (n int, b *Budget) {
	t.Helper()
	p := goldmark.DefaultParser()
	p.AddOptions(Options()...)
	b = NewBudget()
	require.NoError(t, ast.Walk(p.Parse(text.NewReader([]byte(source)), parser.WithContext(Context(b))), walk(&n)))
	return n, b
}

func walk(n *int) ast.Walker {
	return func(x ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering && x.Kind() == xast.KindTableCell {
			*n++
		}
		return ast.WalkContinue, nil
	}
}

func TestBudget(t *testing.T) {
	n, b := cells(t, strings.Repeat("|a", 10)+"|\n"+strings.Repeat("|-", 10)+"|\n"+strings.Repeat("b\n", 1998))
	require.Equal(t, 19_990, n, "the line between header and body has none")
	require.Empty(t, b.Beyond)
	n, b = cells(t, strings.Repeat("|a", 10)+"|\n"+strings.Repeat("|-", 10)+"|\n"+strings.Repeat("b\n", 1999))
	require.Zero(t, n)
	require.Equal(t, "tables have more than 20000 cells", b.Beyond)
	n, b = cells(t, "|a|\n|-|\n"+strings.Repeat("|`\\|`|\n", MaxEscapes+1))
	require.Zero(t, n)
	require.Equal(t, "tables have more than 2000 escaped pipes", b.Beyond)
}

// TestDrawnTables: whatever surrounds tables, no text has more cells than the budget, and
// a small one has the cells that goldmark gives it.
func TestDrawnTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"|", "a", "|a", "|-", "-|", ":-:|", " ", "\t", "\n", "\n\n", "\n> ", "\n- ", "\n  ", "\\|", "`", "===", "\r\n", "\n|-|-|-|\n", "a\n", "|a|b|c|\n|-|-|-|\n"}
	for range 120 {
		unit := ""
		for range 1 + r.IntN(8) {
			unit += pieces[r.IntN(len(pieces))]
		}
		source := strings.Repeat("|a", r.IntN(600)) + "\n" + strings.Repeat("|-", r.IntN(600)) + "\n" + strings.Repeat(unit, r.IntN(300))
		n, b := cells(t, source)
		require.LessOrEqual(t, n, MaxCells, "%q", unit)
		if b.Beyond == "" {
			standard, want := goldmark.DefaultParser(), 0
			goldmark.New(goldmark.WithParser(standard), goldmark.WithExtensions(extension.Table))
			require.NoError(t, ast.Walk(standard.Parse(text.NewReader([]byte(source))), walk(&want)))
			require.Equal(t, want, n, "%q", unit)
		}
	}
}
