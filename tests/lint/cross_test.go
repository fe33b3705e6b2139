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

	"ringmaster/internal/testenv"
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

// TestCrossBuilds: nothing of one processor or system creeps in. For arm64 with cgo
// tests/install builds an archive.
func TestCrossBuilds(t *testing.T) {
	testenv.Need(t, testenv.Full, "building for other systems")
	for name, env := range map[string][]string{
		"linux arm64 without cgo":   {"GOOS=linux", "GOARCH=arm64"},
		"darwin arm64 without cgo":  {"GOOS=darwin", "GOARCH=arm64"},
		"freebsd amd64 without cgo": {"GOOS=freebsd", "GOARCH=amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, typeErrors(t, env, "./cmd/..."))
		})
	}
}

// Test32BitIsRefused checks that a build for a 32-bit system ends with the message
// that says so, and with nothing else.
func Test32BitIsRefused(t *testing.T) {
	const refusal = "ringmaster/internal/only64bit"
	for _, arch := range []string{"386", "arm"} {
		env := []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}
		out, err := run(t, env, "go", "build", "./internal/only64bit")
		require.Error(t, err)
		require.Contains(t, out, "Ringmaster_needs_a_64_bit_system")
		out, err = run(t, env, "go", "list", "-deps", "./gguf", "./distributed")
		require.NoError(t, err, out)
		require.Equal(t, 1, strings.Count(out, refusal), out)
		t.Run(arch, func(t *testing.T) {
			testenv.Need(t, testenv.Full, "building for other systems")
			// The go command compiles only what does not import it.
			out, err := run(t, env, "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
			require.NoError(t, err, out)
			var without []string
			for line := range strings.Lines(out) {
				if !strings.Contains(line, refusal) {
					without = append(without, strings.Fields(line)[0])
				}
			}
			require.NotEmpty(t, without)
			for _, program := range []string{"ringmaster/cmd/server", "ringmaster/cmd/mkmodel"} {
				require.NotContains(t, without, program)
			}
			require.Empty(t, typeErrors(t, env, without...))
		})
	}
}
