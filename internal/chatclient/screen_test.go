package chatclient

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/safetext"
)

// grid is a terminal that supports what screen uses: text, line breaks, carriage return,
// cursor up, erase below, colours (which it drops).
type grid struct {
	rows      [][]string // cells; a wide character leaves its second cell empty
	row, col  int
	top       int // rows above have scrolled away
	w, height int
}

func (g *grid) cell(row, col int) *string {
	for len(g.rows) <= row {
		g.rows = append(g.rows, nil)
	}
	for len(g.rows[row]) <= col {
		g.rows[row] = append(g.rows[row], " ")
	}
	return &g.rows[row][col]
}

func (g *grid) Write(p []byte) (int, error) {
	text := string(p)
	for len(text) > 0 {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			n := strings.IndexAny(rest, "AJm")
			switch rest[n] {
			case 'A':
				up, err := strconv.Atoi(rest[:n])
				if err != nil || g.row-up < g.top {
					return 0, fmt.Errorf("cursor up %q leaves the screen", rest[:n])
				}
				g.row -= up
			case 'J':
				g.rows = g.rows[:min(len(g.rows), g.row+1)]
				if g.row < len(g.rows) {
					g.rows[g.row] = g.rows[g.row][:min(len(g.rows[g.row]), g.col)]
				}
			}
			text = rest[n+1:]
			continue
		}
		var c string
		var w int
		c, text, w, _ = uniseg.FirstGraphemeClusterInString(text, -1)
		switch {
		case c == "\n" || c == "\r\n":
			g.row, g.col = g.row+1, 0
			g.top = max(g.top, g.row-g.height+1)
		case c == "\r":
			g.col = 0
		default:
			if g.col+w > g.w {
				g.row, g.col = g.row+1, 0
				g.top = max(g.top, g.row-g.height+1)
			}
			*g.cell(g.row, g.col) = c
			for i := 1; i < w; i++ {
				*g.cell(g.row, g.col+i) = ""
			}
			g.col += w
		}
	}
	return len(p), nil
}

func (g *grid) String() string {
	var lines []string
	for _, r := range g.rows {
		lines = append(lines, strings.TrimRight(strings.Join(r, ""), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// shown returns the screen after an answer came in the given pieces.
func shown(t *testing.T, width, height int, pieces ...string) string {
	t.Helper()
	g := &grid{w: width, height: height}
	s := &screen{w: g, width: width, height: height, styled: true}
	for _, p := range pieces {
		s.Text(p)
	}
	require.NoError(t, s.End())
	require.Zero(t, g.col, "the cursor is at the start of a row")
	return g.String()
}

const document = `# A title

Some *text* with **bold words**, ` + "`code`" + ` and [a link](https://example.org/x) that is
longer than a row of the screen &amp; ends up \*here\*.
- one
- two
  with more

  and a paragraph
- [x] done

1. first
2. second

> a quotation
> of two lines

` + "```go\nfunc main() {\n\tprintln(\"**not bold**\")\n\n}\n```" + `
After it.

| a | wide column |
|---|---|
| 漢字 | x |
| ~~no~~ | yy |

---
<b>raw</b> end`

const documentShown = `A title

Some text with bold words, code and a
link (https://example.org/x) that is
longer than a row of the screen & ends
up *here*.

• one

• two with more

  and a paragraph

• [x] done

1. first
2. second

│ a quotation of two lines

go
func main() {
    println("**not bold**")

}

After it.

a    │ wide column
──────────────────
漢字 │ x
no   │ yy

───────────────────────────────────────

<b>raw</b> end`

// TestMarkdownInPieces: however an answer is cut into pieces, the screen shows it as if
// it had come at once.
func TestMarkdownInPieces(t *testing.T) {
	whole := shown(t, 40, 60, document)
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var pieces []string
		for rest := document; rest != ""; {
			n := min(1+rng.IntN(9), len(rest))
			for n < len(rest) && rest[n]&0xc0 == 0x80 {
				n++
			}
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, whole, shown(t, 40, 60, pieces...), seed)
	}
}

// TestMarkdown compares the screen with the expected form of each kind of block.
func TestMarkdown(t *testing.T) {
	require.Equal(t, documentShown, shown(t, 40, 60, document))
}

// TestOutgrown: a block longer than the screen stays as it was written, because nothing
// may be erased that has scrolled away (grid refuses that); what follows is formatted
// again.
func TestOutgrown(t *testing.T) {
	long := strings.Repeat("**word** ", 60)
	got := shown(t, 30, 6, strings.SplitAfter(long+"\n\nThen **bold**.", " ")...)
	require.Contains(t, got, "**word**")
	require.True(t, strings.HasSuffix(got, "\nThen bold."), got)
	for seed := range uint64(200) { // any text, on any small screen
		rng := rand.New(rand.NewPCG(seed, 2))
		var pieces []string
		for range 60 {
			pieces = append(pieces, []string{"a", " ", "\n", "\n\n", "```", "~~~", "- ", "1. ", "    ", "|x|y|\n|-|-|\n", "漢字", "**", "> ", "long word ", "\t"}[rng.IntN(15)])
		}
		shown(t, 8+rng.IntN(60), 2+rng.IntN(8), pieces...)
	}
}

// TestNoControl: control characters of an answer never reach the terminal, written as
// they are or as entities.
func TestNoControl(t *testing.T) {
	for _, text := range []string{safetext.Drop("a\x1b]0;title\x07b\x9bc\u202ed\r"), "a&#27;]0;t&#x1b;b &#155;c &#x202e;d", "[x](<&#27;c>) `&#27;`"} {
		set := render(text, 80)
		for _, s := range append([]string{""}, sgr...) {
			set = strings.ReplaceAll(set, "\x1b["+s+"m", "")
		}
		set = strings.ReplaceAll(strings.ReplaceAll(set, plain, ""), "\n", "")
		require.Equal(t, safetext.Drop(set), set, "%q", text)
	}
	require.Equal(t, "tab\tline\nend", safetext.Drop("tab\tline\nend"))
}

// TestCodeHasColours: parts of code in a language that is known have a colour of their
// own, line by line; other code has the one of all code.
func TestCodeHasColours(t *testing.T) {
	require.Equal(t, "\x1b[36;35mfunc\x1b[0m\x1b[36m \x1b[0m\x1b[36;34mf\x1b[0m\x1b[36m() {\x1b[0m\n\x1b[2;36m/* a\x1b[0m\n\x1b[2;36mb */\x1b[0m\x1b[36m }\x1b[0m\n",
		render("```go\nfunc f() {\n/* a\nb */ }\n```", 80))
	require.Equal(t, "\x1b[36mfunc f() {}\x1b[0m\n", render("```none\nfunc f() {}\n```", 80))
	require.Equal(t, "a\n", render("a\n```go\n```", 80))
}

// TestLargeTables: a table that the parser would fill up to millions of cells is shown as it
// is written.
func TestLargeTables(t *testing.T) {
	source := strings.Repeat("|a", 5000) + "\n" + strings.Repeat("|-", 5000) + "\n" + strings.Repeat("b\n", 1000)
	set := render(source, 80)
	require.Contains(t, set, "|a|a|a")
	require.Less(t, len(set), 2*len(source)+20*1000)
}
