package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The map of packages is the table of docs/architecture.md: a row is
// "| LEVEL | `PACKAGE`, `PACKAGE` | ... |".
var (
	mapRow  = regexp.MustCompile("(?m)^\\| (\\d*) ?\\| ((?:`[\\w/]+`(?:, )?)+) \\|")
	mapName = regexp.MustCompile("`([^`]+)`")
)

// mapOfPackages reads the map: the packages in the order of the table, and the level of
// each.
func mapOfPackages(t *testing.T, document string) (order []string, levels map[string]int) {
	levels = map[string]int{}
	for _, row := range mapRow.FindAllStringSubmatch(document, -1) {
		for _, name := range mapName.FindAllStringSubmatch(row[2], -1) {
			p := name[1]
			if strings.HasPrefix(p, "tests/") {
				continue
			}
			level, err := strconv.Atoi(row[1])
			require.NoError(t, err, "%s has no level", p)
			_, twice := levels[p]
			require.False(t, twice, "%s has two rows", p)
			order, levels[p] = append(order, p), level
		}
	}
	return order, levels
}

// importsOf lists the packages outside tests/ and what they import of the module, on this
// system and with the GPU code.
func importsOf(t *testing.T) map[string][]string {
	imports := map[string][]string{}
	for _, tags := range []string{"", "metalsim"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-tags", tags, "-json=ImportPath,Imports", "./...").Output()
		require.NoError(t, err)
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath string
				Imports    []string
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			from, ours := strings.CutPrefix(p.ImportPath, "ringmaster/")
			if !ours || strings.HasPrefix(from, "tests/") {
				continue
			}
			imports[from] = append(imports[from], []string{}...)
			for _, i := range p.Imports {
				if to, ours := strings.CutPrefix(i, "ringmaster/"); ours {
					imports[from] = append(imports[from], to)
				}
			}
		}
	}
	return imports
}

// wrongImports says what in a map contradicts the imports.
func wrongImports(levels map[string]int, imports map[string][]string) (wrong []string) {
	for from, all := range imports {
		level, ok := levels[from]
		if !ok {
			wrong = append(wrong, from+" has no row in the table of packages of docs/architecture.md")
		}
		for _, to := range all {
			if lower, known := levels[to]; ok && (!known || lower >= level) {
				wrong = append(wrong, from+" must not import "+to+", which has no lower level in docs/architecture.md")
			}
		}
	}
	for p := range levels {
		if _, ok := imports[p]; !ok {
			wrong = append(wrong, "docs/architecture.md has a row for "+p+", which does not exist")
		}
	}
	return wrong
}

// misplaced lists the packages whose rows do not stand below the row of the package that
// they are in, with nothing else between.
func misplaced(order []string) (wrong []string) {
	rows := map[string]bool{}
	for i, p := range order {
		for up := path.Dir(p); up != "."; up = path.Dir(up) {
			if rows[up] && order[i-1] != up && !strings.HasPrefix(order[i-1], up+"/") {
				wrong = append(wrong, p)
			}
		}
		for _, later := range order[i+1:] {
			if strings.HasPrefix(p, later+"/") {
				wrong = append(wrong, p)
			}
		}
		rows[p] = true
	}
	return wrong
}

// TestImportsPointDown checks the map of packages: every package has a row, below that of
// the package that it is in, and imports only packages of lower levels.
func TestImportsPointDown(t *testing.T) {
	order, levels := mapOfPackages(t, read(t, "docs/architecture.md"))
	require.Empty(t, wrongImports(levels, importsOf(t)))
	require.Empty(t, misplaced(order), "rows of packages stand below those of the packages that they are in")
}

// TestWrongMaps: what is wrong with a map is seen.
func TestWrongMaps(t *testing.T) {
	order, levels := mapOfPackages(t, "| 2 | `a` | x | y |\n| 1 | `a/b`, `a/c` | x | |\n| | `tests/d` | x | |\n| 0 | `e` | | |\n")
	require.Equal(t, []string{"a", "a/b", "a/c", "e"}, order)
	require.Equal(t, map[string]int{"a": 2, "a/b": 1, "a/c": 1, "e": 0}, levels)
	good := map[string][]string{"a": {"a/b", "e"}, "a/b": {"e"}, "a/c": nil, "e": nil}
	require.Empty(t, wrongImports(levels, good))
	for name, c := range map[string]struct {
		from string
		to   []string
	}{"up": {"e", []string{"a"}}, "same level": {"a/b", []string{"a/c"}}, "no row": {"f", nil}, "no row of what is imported": {"a", []string{"f"}}} {
		imports := map[string][]string{}
		for k, v := range good {
			imports[k] = v
		}
		imports[c.from] = c.to
		require.Len(t, wrongImports(levels, imports), 1, name)
	}
	delete(good, "a/c")
	require.Len(t, wrongImports(levels, good), 1)
	require.Empty(t, misplaced(order))
	require.Equal(t, []string{"a/c"}, misplaced([]string{"a", "a/b", "e", "a/c"}))
	require.Equal(t, []string{"a/b"}, misplaced([]string{"a/b", "a", "e"}))
}
