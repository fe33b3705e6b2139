package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownPrefixes lists the texts of a file that begin with its package's name and a colon,
// except those of panics, which show where they come from by their stack.
func ownPrefixes(files *token.FileSet, file *ast.File) (wrong []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.Ident)
			return !ok || f.Name != "panic"
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && strings.HasPrefix(text, file.Name.Name+": ") {
				wrong = append(wrong, files.Position(n.Pos()).String()+": "+n.Value)
			}
		}
		return true
	})
	return wrong
}

// TestErrorsHaveNoPackage: an error says what failed and where; which package says so helps
// no user.
func TestErrorsHaveNoPackage(t *testing.T) {
	for _, f := range sources(t, "*.go") {
		if strings.HasPrefix(f, "tests/") || strings.HasSuffix(f, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(root, f), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, w := range ownPrefixes(files, file) {
			t.Errorf("%s begins with the name of its package", strings.TrimPrefix(w, root+"/"))
		}
	}
}

// TestPrefixesAreSeen: texts with the name of the package are found, and no others.
func TestPrefixesAreSeen(t *testing.T) {
	for line, want := range map[string]int{
		`errors.New("gguf: no tensor")`:                     1,
		`fmt.Errorf("gguf: tensor %q: %w", name, err)`:      1,
		`fmt.Errorf("gguf: "+format, args...)`:              1,
		"log.Warn(`gguf: the file ended`)":                  1,
		`fmt.Errorf("tensor %q of gguf: %w", name, err)`:    0,
		`fmt.Errorf("kernels: %w", err)`:                    0,
		`panic(fmt.Sprintf("gguf: %v cannot happen", err))`: 0,
	} {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, "", "package gguf\nfunc f() {"+line+"}", 0)
		require.NoError(t, err)
		require.Len(t, ownPrefixes(files, file), want, line)
	}
}
