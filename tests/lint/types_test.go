//go:build full

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// typeErrors checks the types of packages, and of all that they import, for another
// system or processor, without cgo: compiling them takes far longer. Function bodies of
// other modules are left out, since no change here can break them.
func typeErrors(t *testing.T, env []string, patterns ...string) []string {
	t.Helper()
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	var said []string
	seen := map[string]bool{}
	found, err := packages.Load(&packages.Config{
		Context: t.Context(),
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir:     dir,
		Env:     append(append(os.Environ(), "CGO_ENABLED=0"), env...),
		ParseFile: func(files *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, dir+string(filepath.Separator)) {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}, patterns...)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	packages.Visit(found, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			// Functions of other modules are errors too, for want of a body.
			ours := p.PkgPath == "ringmaster" || strings.HasPrefix(p.PkgPath, "ringmaster/")
			if (ours || e.Kind == packages.ListError) && !seen[e.Error()] {
				seen[e.Error()] = true
				said = append(said, p.PkgPath+": "+e.Error())
			}
		}
	})
	return said
}
