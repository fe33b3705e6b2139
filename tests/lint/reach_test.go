//go:build full

package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// A reach finds what the programs use of the module, by references from main functions.
// A method is used if used code names it, if it implements a method of an interface that
// used code calls, or if a library may call it through an interface of its own. deadcode
// also counts every exported method of a type that is converted to an interface, because
// reflection could call it.
type reach struct {
	ours func(path string) bool // a package that is part of the programs
	uses map[types.Object][]types.Object
	// forLibraries are the interfaces of libraries, by the names of their methods.
	forLibraries map[string][]*types.Interface
	named        map[types.Object]bool // types of the module

	reached map[types.Object]bool
	called  map[string][]*types.Interface // interfaces of the module, by a method that is called
	generic map[*types.Interface]bool     // those of them with parameters
	queue   []types.Object
}

func newReach(ours func(path string) bool) *reach {
	builtin := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return &reach{ours: ours, uses: map[types.Object][]types.Object{}, forLibraries: map[string][]*types.Interface{"Error": {builtin}}, named: map[types.Object]bool{},
		reached: map[types.Object]bool{}, called: map[string][]*types.Interface{}, generic: map[*types.Interface]bool{}}
}

// declared says whether an object is one that can be unused: a function, a method, or
// what a package declares otherwise.
func (r *reach) declared(o types.Object) bool {
	if o == nil || o.Pkg() == nil || !r.ours(o.Pkg().Path()) {
		return false
	}
	switch o := o.(type) {
	case *types.Func, *types.TypeName:
		return true
	case *types.Const, *types.Var:
		return o.Parent() == o.Pkg().Scope()
	}
	return false
}

// add notes the references of a package. Its main function, its init functions, and
// what it exports to C are used.
func (r *reach) add(files []*ast.File, info *types.Info, program bool) {
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				o := info.Defs[d.Name]
				r.refer(o, d, info)
				if d.Recv == nil && (d.Name.Name == "init" || d.Name.Name == "main" && program) || d.Doc != nil && exported(d.Doc) {
					r.reach(o)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					r.spec(s, info)
				}
			}
		}
	}
}

// exported reports whether C or the linker calls a function.
func exported(doc *ast.CommentGroup) bool {
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//export ") || strings.HasPrefix(c.Text, "//go:linkname ") {
			return true
		}
	}
	return false
}

func (r *reach) spec(s ast.Spec, info *types.Info) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		r.named[info.Defs[s.Name]] = true
		r.refer(info.Defs[s.Name], s, info)
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.Name == "_" && s.Type != nil {
				continue // var _ Interface = (*T)(nil) uses nothing
			}
			o := info.Defs[name]
			r.refer(o, s, info)
			if name.Name == "_" {
				r.reach(o)
			}
		}
	}
}

// refer notes what the declaration of an object mentions, except itself.
func (r *reach) refer(owner types.Object, n ast.Node, info *types.Info) {
	if owner == nil {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if o := info.Defs[n.Name]; o != nil && o != owner {
				r.named[o] = true // declared in a function
				r.refer(o, n.Type, info)
			}
		case *ast.Ident:
			o := info.Uses[n]
			if f, ok := o.(*types.Func); ok {
				o = f.Origin()
			}
			if o != owner && r.declared(o) {
				r.uses[owner] = append(r.uses[owner], o)
			}
		}
		return true
	})
}

// extended returns what is used if some objects are used too. r itself does not change.
func (r *reach) extended(more []types.Object) *reach {
	c := *r
	c.reached, c.called, c.generic = maps.Clone(r.reached), maps.Clone(r.called), maps.Clone(r.generic)
	for _, o := range more {
		c.reach(o)
	}
	c.follow()
	return &c
}

func (r *reach) reach(o types.Object) {
	if o != nil && !r.reached[o] {
		r.reached[o] = true
		r.queue = append(r.queue, o)
	}
}

// follow finds all that is used.
func (r *reach) follow() {
	for done := false; !done; {
		for len(r.queue) > 0 {
			o := r.queue[len(r.queue)-1]
			r.queue = r.queue[:len(r.queue)-1]
			for _, u := range r.uses[o] {
				r.reach(u)
			}
			if f, ok := o.(*types.Func); ok {
				r.call(f)
			}
		}
		for o := range r.named {
			if r.reached[o] {
				r.methods(o)
			}
		}
		done = len(r.queue) == 0
	}
}

// call notes the call of a method of an interface.
func (r *reach) call(f *types.Func) {
	recv := f.Signature().Recv()
	if recv == nil {
		return
	}
	if i, ok := recv.Type().Underlying().(*types.Interface); ok {
		r.called[f.Name()] = append(slices.Clip(r.called[f.Name()]), i)
		n, ok := recv.Type().(*types.Named)
		r.generic[i] = ok && n.TypeParams().Len() > 0
	}
}

// methods marks the methods of a used type that are called through interfaces.
func (r *reach) methods(o types.Object) {
	t := o.Type()
	if _, ok := t.Underlying().(*types.Interface); !ok {
		t = types.NewPointer(t)
	}
	set := types.NewMethodSet(t)
	for i := range set.Len() {
		m, ok := set.At(i).Obj().(*types.Func)
		if !ok {
			continue
		}
		if m = m.Origin(); r.reached[m] || !r.declared(m) {
			continue
		}
		for _, all := range [][]*types.Interface{r.called[m.Name()], r.forLibraries[m.Name()]} {
			for _, i := range all {
				if implements(t, set, i, r.generic[i]) {
					r.reach(m)
				}
			}
		}
	}
}

// implements is types.Implements. If one of the two is generic, only the names of the
// methods are compared.
func implements(t types.Type, set *types.MethodSet, i *types.Interface, byName bool) bool {
	if types.Implements(t, i) {
		return true
	}
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); !byName && (!ok || n.TypeParams().Len() == 0) {
		return false
	}
	for k := range i.NumMethods() {
		if set.Lookup(i.Method(k).Pkg(), i.Method(k).Name()) == nil {
			return false
		}
	}
	return true
}

// library notes the interfaces that a package of a library declares.
func (r *reach) library(p *types.Package) {
	for _, name := range p.Scope().Names() {
		o, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || !o.Exported() {
			continue
		}
		i, ok := o.Type().Underlying().(*types.Interface)
		if !ok {
			continue
		}
		for k := range i.NumMethods() {
			m := i.Method(k).Name()
			r.forLibraries[m] = append(r.forLibraries[m], i)
		}
	}
}

// nameless are methods that the packages errors and http call through interfaces without
// names.
var nameless = map[string]bool{"Is": true, "As": true, "Unwrap": true, "FlushError": true}

// unused adds what no program uses, with the place of its declaration, and without one
// what a program uses.
func (r *reach) unused(all map[string]token.Position, files *token.FileSet, objects []types.Object) {
	for _, o := range objects {
		name := nameOf(o)
		if r.reached[o] || nameless[o.Name()] {
			all[name] = token.Position{}
			continue
		}
		if _, known := all[name]; !known {
			all[name] = files.Position(o.Pos())
		}
	}
}

// nameOf is "package.Name" or "package.Type.Method", without the module.
func nameOf(o types.Object) string {
	name := o.Name()
	if f, ok := o.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if n, ok := t.(*types.Named); ok {
				name = n.Obj().Name() + "." + name
			}
		}
	}
	return strings.TrimPrefix(o.Pkg().Path(), "ringmaster/") + "." + name
}
