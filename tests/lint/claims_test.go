package lint

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxRow bounds a row of docs/testing.md in characters. A claim and the names of its tests
// fit; what was measured when belongs to docs/notes.
const maxRow = 300

// wrongClaims says which rows of a document's tables are too long or name tests that do
// not exist.
func wrongClaims(document string, known documentTests) (wrong []string) {
	for i, line := range strings.Split(document, "\n") {
		row := strings.TrimSpace(line)
		if !strings.HasPrefix(row, "|") {
			continue
		}
		if n := utf8.RuneCountInString(row); n > maxRow {
			wrong = append(wrong, fmt.Sprintf("line %d: a row of %d characters, of %d at most; move figures and history to docs/notes", i+1, n, maxRow))
		}
		for _, w := range word.FindAllString(row, -1) {
			if known.unknown(w) {
				wrong = append(wrong, fmt.Sprintf("line %d: no test is called %s", i+1, w))
			}
		}
	}
	return wrong
}

// TestClaims: the rows of docs/testing.md are short, and the tests that they name exist.
func TestClaims(t *testing.T) {
	text := read(t, "docs/testing.md")
	require.Contains(t, text, "\n| claim | proof |\n")
	require.Empty(t, wrongClaims(text, knownTests(t)))
}

// TestWrongClaims: TestClaims sees long rows and tests that do not exist, and nothing else.
func TestWrongClaims(t *testing.T) {
	known := documentTests{named: map[string]bool{"TestRight": true}, shared: map[string]bool{"Sums": true}}
	pad := func(row string, n int) string {
		return row + strings.Repeat("é", n-utf8.RuneCountInString(row)-1) + "|"
	}
	for _, row := range []string{
		"| claim | `pkg` `TestRight`, `TestRi…`, `TestAlone/Sums`, `TestOnRanks/…` |",
		"A sentence names TestWrong: TestPathsInDocuments judges what stands outside of tables. " + strings.Repeat("x", 2*maxRow),
		pad("| claim | `TestRight` ", maxRow),
		"| Testing, Examples, `go test` | |",
	} {
		require.Empty(t, wrongClaims("# Title\n\n"+row+"\n", known), row)
	}
	for _, row := range []string{
		pad("| claim | `TestRight` ", maxRow+1),
		"  " + pad("| claim | ", maxRow+1),
		"| claim | `TestWrong` |",
		"| claim | TestWrong |",
		"| claim | `TestRight`, `FuzzWrong` |",
		"| claim | `TestWr…` |",
		"| claim | `TestAlone/Products` |",
		"| `BenchmarkWrong` | |",
	} {
		require.Len(t, wrongClaims("# Title\n\n"+row+"\n", known), 1, row)
	}
}
