// Package recipes follows a recipe of CONTRIBUTING.md on a copy of the tree: its test adds
// an op by copying another one in every file that the recipe names.
package recipes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// names are those of the op that is copied, in Go and in C.
	names = regexp.MustCompile(`\b(rm_op_|e\.k->)?([Aa]dd)(_task|Kernel)?\b`)
	// row is a line of the table of inner loops.
	row = regexp.MustCompile(`^\t(void \(\*add\)\(.*\);|\.add = add,)$`)
	// function is the first line of a function of C or Metal, or a declaration.
	function = regexp.MustCompile(`^(static |kernel )?void (rm_op_add|add_task|add)\(`)
)

// renamed is text about Add as text about Example.
func renamed(text string) string {
	return names.ReplaceAllStringFunc(text, func(name string) string {
		return strings.NewReplacer("Add", "Example", "add", "example").Replace(name)
	})
}

// twin returns the text of a file with a copy of whatever Add has in it, and how many
// pieces were copied.
func twin(file, text string) (string, int, error) {
	if strings.HasSuffix(file, ".go") {
		return twinOfGo(file, text)
	}
	s, n := twinOfC(text)
	return s, n, nil
}

// twinOfGo copies functions, methods of interfaces, variables, strings in lists, and the
// elements of a table with op: "Add".
func twinOfGo(file, text string) (string, int, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.ParseComments)
	if err != nil {
		return "", 0, err
	}
	type edit struct {
		at    int
		added string
	}
	var edits []edit
	add := func(doc *ast.CommentGroup, n ast.Node, between string) {
		from, end := set.Position(n.Pos()).Offset, set.Position(n.End()).Offset
		if doc != nil {
			from = set.Position(doc.Pos()).Offset
		}
		edits = append(edits, edit{end, between + renamed(text[from:end])})
	}
	inList := func(list []ast.Expr) {
		for _, e := range list {
			if l, ok := e.(*ast.BasicLit); ok && l.Value == `"Add"` {
				add(nil, l, ", ")
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "Add" {
				add(n.Doc, n, "\n\n")
				return false
			}
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				if len(m.Names) == 1 && m.Names[0].Name == "Add" {
					add(m.Doc, m, "\n\t")
				}
			}
		case *ast.ValueSpec:
			if n.Names[0].Name == "addKernel" {
				add(n.Doc, n, "\n\t")
			}
		case *ast.CallExpr:
			inList(n.Args)
		case *ast.CompositeLit:
			inList(n.Elts)
			for _, e := range n.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, _ := kv.Key.(*ast.Ident)
				value, _ := kv.Value.(*ast.BasicLit)
				if key != nil && value != nil && key.Name == "op" && value.Value == strconv.Quote("Add") {
					add(nil, n, ", ")
					return false
				}
			}
		}
		return true
	})
	slices.SortFunc(edits, func(a, b edit) int { return b.at - a.at })
	for _, e := range edits {
		text = text[:e.at] + e.added + text[e.at:]
	}
	return text, len(edits), nil
}

// twinOfC copies functions, declarations and rows of the table of inner loops.
func twinOfC(text string) (string, int) {
	lines := strings.SplitAfter(text, "\n")
	var out strings.Builder
	copied := 0
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], "\n")
		end := i + 1
		switch {
		case row.MatchString(line) || function.MatchString(line) && strings.HasSuffix(line, ";"):
		case function.MatchString(line):
			for end < len(lines) && !strings.HasPrefix(lines[end-1], "}") {
				end++
			}
		default:
			out.WriteString(lines[i])
			continue
		}
		piece := strings.Join(lines[i:end], "")
		out.WriteString(piece + renamed(piece))
		copied++
		i = end - 1
	}
	return out.String(), copied
}
