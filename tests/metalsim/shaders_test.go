package metalsim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/metal/shaders"
)

// libraries finds the calls newLibrary("name", "file", ...) of metal/*.go: the
// files that are compiled together.
func libraries(t *testing.T) map[string][]string {
	t.Helper()
	sources, err := filepath.Glob("../../metal/*.go")
	require.NoError(t, err)
	out := map[string][]string{}
	for _, f := range sources {
		tree, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		require.NoError(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "newLibrary" {
				return true
			}
			var args []string
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				require.True(t, ok, "%s: newLibrary with something that is no text", f)
				s, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				args = append(args, s)
			}
			out[args[0]] = args[1:]
			return true
		})
	}
	require.NotEmpty(t, out, "metal/ has no shader libraries")
	return out
}

// TestShaders checks every library of metal/ as the host would compile it: with
// mslgen's checks, and with address spaces as distinct types.
func TestShaders(t *testing.T) {
	cc := value(t, "MSLSIM_CC")
	used := map[string]bool{"prelude.metal": true}
	t.Cleanup(func() {
		all, err := filepath.Glob("../../metal/shaders/*")
		require.NoError(t, err)
		for _, f := range all {
			if ext := filepath.Ext(f); ext == ".md" || ext == ".go" {
				continue
			}
			require.True(t, used[filepath.Base(f)], "%s is in no library", f)
		}
	})
	for name, files := range libraries(t) {
		for _, f := range files {
			used[f] = true
		}
		text, err := shaders.Library(files...)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			in, prelude := filepath.Join(dir, "x.metal"), filepath.Join(dir, "x.h")
			require.NoError(t, os.WriteFile(in, []byte(text), 0o600))
			require.NoError(t, os.WriteFile(prelude, []byte("#define __METAL_VERSION__ 310\n"), 0o600))
			r := start(t, []string{"MSL_CHECK=1"}, cc, filepath.Join(dir, "x.so"), in, prelude)
			require.Zero(t, r.code, r.out)
		})
	}
}
