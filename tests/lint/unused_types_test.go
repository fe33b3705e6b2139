//go:build full

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// systems are those whose files are looked at: what any of them uses is used.
var systems = [][]string{
	{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1"},
	{"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"},
	{"GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=1"},
}

// checker checks the types of packages from their sources, without compiling anything:
// C is taken to have every name.
type checker struct {
	t       *testing.T
	files   *token.FileSet
	library map[string]*types.Package // of other modules, from the first system
	all     map[string]token.Position // what was found; no position: it is used
	// roots and stays count as used by a program.
	roots, stays map[string]bool
	// exists are the stays that exist, used those that are used anyway.
	exists, used map[string]bool
}

// unusedBy returns what programs do not use of their module, "package.Name" or
// "package.Type.Method", with the place. Packages for tests use nothing, and are not
// looked at. roots and stays, and what they use, count as used; needless are those stays
// that are used without that.
func unusedBy(t *testing.T, forTests func(path string) bool, roots, stays []string) (found map[string]string, needless []string) {
	c := &checker{t: t, files: token.NewFileSet(), library: map[string]*types.Package{"unsafe": types.Unsafe}, all: map[string]token.Position{},
		roots: map[string]bool{}, stays: map[string]bool{}, exists: map[string]bool{}, used: map[string]bool{}}
	for _, name := range roots {
		c.roots[name] = true
	}
	for _, name := range stays {
		c.stays[name] = true
	}
	for _, env := range systems {
		c.system(env, forTests)
	}
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	for _, name := range stays {
		if c.used[name] || !c.exists[name] {
			needless = append(needless, name)
		}
	}
	found = map[string]string{}
	for name, at := range c.all {
		if at.IsValid() {
			file, err := filepath.Rel(dir, at.Filename)
			require.NoError(t, err)
			at.Filename = file
			found[name] = at.String()
		}
	}
	return found, needless
}

// system looks at the files of a system.
func (c *checker) system(env []string, forTests func(path string) bool) {
	dir, err := filepath.Abs(root)
	require.NoError(c.t, err)
	listed, err := packages.Load(&packages.Config{Context: c.t.Context(), Dir: dir, Env: append(os.Environ(), env...),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps}, "./...")
	require.NoError(c.t, err)
	inModule := func(path string) bool { return path == "ringmaster" || strings.HasPrefix(path, "ringmaster/") }
	ours := func(path string) bool { return inModule(path) && !forTests(strings.TrimPrefix(path, "ringmaster/")) }
	r := newReach(ours)
	checked := map[string]*types.Package{}
	var objects []types.Object
	packages.Visit(listed, nil, func(p *packages.Package) { // imports first
		if inModule(p.PkgPath) && !ours(p.PkgPath) || c.library[p.PkgPath] != nil {
			return
		}
		files, info := c.check(p, checked, ours(p.PkgPath))
		if !ours(p.PkgPath) {
			c.library[p.PkgPath] = checked[p.PkgPath]
			return
		}
		r.add(files, info, p.Name == "main")
		objects = append(objects, declaredIn(checked[p.PkgPath])...)
		for _, i := range p.Imports {
			if !inModule(i.PkgPath) && !standard(i.PkgPath) {
				r.library(c.library[i.PkgPath])
			}
		}
	})
	for path, p := range c.library {
		if standard(path) {
			r.library(p)
		}
	}
	r.follow()
	var add []types.Object
	for _, o := range objects {
		if c.roots[nameOf(o)] {
			add = append(add, o)
		}
	}
	r = r.extended(add)
	c.need(r, objects)
	for _, o := range objects {
		if c.stays[nameOf(o)] {
			r.reach(o)
		}
	}
	r.follow()
	r.unused(c.all, c.files, objects)
}

// need notes which stays are used without being exceptions, by a program or by another
// exception.
func (c *checker) need(r *reach, objects []types.Object) {
	var stays []types.Object
	for _, o := range objects {
		if c.stays[nameOf(o)] {
			stays = append(stays, o)
		}
	}
	for i, o := range stays {
		others := slices.Concat(stays[:i], stays[i+1:])
		name := nameOf(o)
		c.used[name] = c.used[name] || r.extended(others).reached[o]
		c.exists[name] = true
	}
}

// standard reports whether a package is one of the standard library that others can
// import.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "internal" && first != "vendor"
}

// check checks the types of a package; of another module without the bodies of
// functions. Errors are those of C, and of files for other systems.
func (c *checker) check(p *packages.Package, checked map[string]*types.Package, bodies bool) ([]*ast.File, *types.Info) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(c.t, err)
		files = append(files, f)
	}
	info := &types.Info{}
	if bodies {
		info.Uses, info.Defs = map[*ast.Ident]types.Object{}, map[*ast.Ident]types.Object{}
	}
	config := types.Config{FakeImportC: true, IgnoreFuncBodies: !bodies, Error: func(error) {}, Sizes: types.SizesFor("gc", "amd64"),
		Importer: importer(func(path string) (*types.Package, error) {
			if i := p.Imports[path]; i != nil {
				path = i.PkgPath
			}
			if q := checked[path]; q != nil {
				return q, nil
			}
			return c.library[path], nil
		})}
	checked[p.PkgPath], _ = config.Check(p.PkgPath, c.files, files, info) // Error hears of errors
	return files, info
}

type importer func(path string) (*types.Package, error)

// Import is described at types.Importer.
func (f importer) Import(path string) (*types.Package, error) { return f(path) }

// declaredIn lists variables, functions, types, methods, and the methods of interfaces
// that a package declares. Constants are often the whole of an enumeration of others.
func declaredIn(p *types.Package) []types.Object {
	var all []types.Object
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		switch o := o.(type) {
		case *types.Var:
			all = append(all, o)
		case *types.Func:
			if name != "main" {
				all = append(all, o)
			}
		case *types.TypeName:
			all = append(all, o)
			n, ok := o.Type().(*types.Named)
			if !ok || o.IsAlias() {
				continue
			}
			for m := range n.Methods() {
				all = append(all, m)
			}
			if i, ok := n.Underlying().(*types.Interface); ok {
				for m := range i.ExplicitMethods() {
					all = append(all, m)
				}
			}
		}
	}
	return all
}
