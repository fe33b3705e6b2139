package main

import (
	"fmt"
	"strings"
)

type argument struct {
	kind, index string // of the attribute
	typ         string // of a parameter that is not a pointer
	at          tok
}

type kernelInfo struct {
	name string
	args []argument
}

// function is what is known about the functions with one name.
type function struct {
	at        tok
	overloads int
	calls     []string        // names followed by (
	names     []string        // all names that occur
	asks      map[string]bool // x of is_function_constant_defined(x)
}

type constantInfo struct{ name, id string }

// instance is one entry of the library: a kernel and the name the host uses.
type instance struct {
	host, kernel, expr string
	at                 tok
}

// unit is one source during the walk.
type unit struct {
	ts        []tok
	out       []tok
	kernels   map[string]*kernelInfo
	order     []string // of kernels
	instances []instance
	constants []constantInfo
	derived   map[string][]tok // constants made of function constants
	isConst   map[string]bool  // a function constant or derived from one
	functions map[string]*function
	vectors   types

	// the declaration that is being read
	start    int // its first token in out
	known    types
	template bool
	kernel   bool
	host     string
	name     tok // before its parameters
}

func newUnit(ts []tok) *unit {
	u := &unit{ts: ts, kernels: map[string]*kernelInfo{}, derived: map[string][]tok{}, isConst: map[string]bool{},
		functions: map[string]*function{}, vectors: newTypes()}
	u.reset()
	return u
}

func (u *unit) reset() {
	u.start, u.known, u.template, u.kernel, u.host, u.name = len(u.out), u.vectors, false, false, "", tok{}
}

var attributeKinds = map[string]string{
	"thread_position_in_grid": "MK_TPIG", "threadgroup_position_in_grid": "MK_TGPIG",
	"thread_position_in_threadgroup": "MK_TPITG", "threads_per_threadgroup": "MK_TPTG", "dispatch_threads_per_threadgroup": "MK_TPTG",
	"threads_per_grid": "MK_TPG", "threadgroups_per_grid": "MK_TGPG", "thread_index_in_threadgroup": "MK_TIITG",
	"simdgroup_index_in_threadgroup": "MK_SGITG", "thread_index_in_simdgroup": "MK_TIISG",
	"simdgroups_per_threadgroup": "MK_SGPTG", "threads_per_simdgroup": "MK_TPSG", "thread_execution_width": "MK_TPSG",
}

// walk reads the program scope; bodies are taken as a whole.
func (u *unit) walk() {
	for i := 0; i < len(u.ts); i++ {
		t := u.ts[i]
		switch {
		case t.kind == '#':
			if strings.HasPrefix(t.s, "#pragma") {
				u.space(t)
				continue
			}
			u.out = append(u.out, t)
			if len(u.out) == u.start+1 {
				u.start = len(u.out)
			}
		case t.s == "template" && u.ts[i+1].s == "<":
			e := angle(u.ts, i+1)
			u.known = u.known.with(u.ts[i:e])
			u.out = append(u.out, u.sub(u.ts[i:e+1])...)
			u.template = true
			i = e
		case t.s == "template":
			i = u.instantiate(i)
		case t.s == "kernel":
			u.kernel = true
			u.space(t)
		case t.s == "[[":
			i = u.attribute(i)
		case t.s == "(":
			i = u.parameters(i)
		case t.s == "{":
			i = u.block(i)
		case t.s == "}": // of a namespace
			u.out = append(u.out, t)
			u.reset()
		case t.s == ";":
			u.declaration(t)
		default:
			if t.kind == 'i' {
				lintWords(u.ts[i : i+1])
			}
			u.out = append(u.out, t)
		}
	}
}

// space keeps the line breaks before a dropped token.
func (u *unit) space(t tok) { u.out = append(u.out, tok{ws: t.ws}) }

func (u *unit) sub(ts []tok) []tok {
	r := rewriter{known: u.known}
	return r.rewrite(ts)
}

func hostName(ts []tok) string {
	for i, t := range ts {
		if t.s == "host_name" && i+2 < len(ts) {
			return strings.Trim(ts[i+2].s, `"`)
		}
	}
	return ""
}

// instantiate reads "template [[host_name("x")]] kernel void f<A>(...);", drops
// it and keeps the instance for the registry.
func (u *unit) instantiate(i int) int {
	ts := u.ts
	e := i
	for ts[e].s != ";" && e < len(ts)-1 {
		e++
	}
	host, j := "", i+1
	for ts[j].s == "[[" || ts[j].s == "kernel" {
		if ts[j].s == "[[" {
			m := match(ts, j)
			host = hostName(ts[j:m])
			j = m
		}
		j++
	}
	// The name is what precedes the last < outside of parentheses that the
	// declaration's type did not open.
	end := e
	if ts[e-1].s == ")" { // with parameters: void f<A>(...)
		for end = j; end < e && ts[end].s != "<"; end++ {
		}
		end = angle(ts, end) + 1
	}
	st := j
	for q := j; q < end; q++ {
		if ts[q].s == "<" {
			st = q - 1
			break
		}
	}
	if ts[j].s == "decltype" && st+1 < end { // template kernel decltype(f<A>) f<A>;
		m := match(ts, j+1)
		st = m + 1
		end = e
	}
	if host == "" {
		lint(ts[i], "an instance of a kernel needs [[host_name]]")
	}
	u.instances = append(u.instances, instance{host, ts[st].s, strings.TrimSpace(text(ts[st:end])), ts[i]})
	u.out = append(u.out, tok{ws: ts[i].ws + lines(ts[i+1:e])})
	u.reset()
	return e
}

// attribute reads one outside of parameters.
func (u *unit) attribute(i int) int {
	ts := u.ts
	e := match(ts, i)
	if has(ts[i:e], "kernel") {
		u.kernel = true
	}
	if h := hostName(ts[i:e]); h != "" {
		u.host = h
	}
	if !has(ts[i:e], "function_constant") {
		return e
	}
	name, id := ts[i-1].s, strings.TrimSpace(text(ts[i+3:e-1]))
	for _, c := range u.constants {
		if c.id == id || c.name == name {
			lint(ts[i], "function constant %s (%s) is there already", name, id)
		}
	}
	u.constants = append(u.constants, constantInfo{name, id})
	u.isConst[name] = true
	decl := u.out[u.start:]
	typ := ""
	for _, x := range code(decl)[:len(code(decl))-1] {
		if x.s != "constant" && x.s != "const" && x.s != "static" {
			typ += x.s + " "
		}
	}
	ws := lines(decl)
	u.out = append(u.out[:u.start], tok{ws: ws, s: "static " + typ + name + "; static bool " + name + "_msl_def"})
	u.template = true // marks it so that lintGlobal skips it
	return e
}

// parameters reads the parenthesised list after a name.
func (u *unit) parameters(i int) int {
	ts := u.ts
	e := match(ts, i)
	p := ts[i+1 : e]
	u.name = ts[i-1]
	if e+1 < len(ts) && ts[e+1].s == "{" {
		if u.kernel {
			p = u.kernelParameters(p)
		} else {
			lintPointers(p)
		}
	}
	u.out = append(u.out, ts[i])
	u.out = append(u.out, u.sub(p)...)
	u.out = append(u.out, ts[e])
	return e
}

// kernelParameters keeps the attributes and returns the list without them.
func (u *unit) kernelParameters(ts []tok) []tok {
	k := &kernelInfo{name: u.name.s}
	if u.kernels[k.name] != nil {
		lint(u.name, "kernel %s is there already", k.name)
	}
	u.kernels[k.name] = k
	u.order = append(u.order, k.name)
	var out []tok
	next := 0
	for n, p := range split(ts) {
		clean, a := attributes(p)
		if a.kind == "" {
			if !has(clean, "*", "&") {
				lint(a.at, "%s: parameter %d has no attribute", k.name, n)
			}
			a.kind, a.index = "MK_BUF", fmt.Sprint(next)
		}
		if a.kind == "MK_BUF" {
			if m, _ := fmt.Sscan(a.index, &next); m == 1 {
				next++
			}
			if !has(clean, "device", "constant") {
				lint(a.at, "%s: a buffer is device or constant", k.name)
			}
			if !has(clean, "*", "&") {
				lint(a.at, "%s: a buffer is a pointer or a reference", k.name)
			}
		}
		k.args = append(k.args, a)
		if n > 0 {
			out = append(out, tok{s: ","})
		}
		out = append(out, clean...)
	}
	lintIndices(k)
	lintPositions(k)
	if !u.template {
		h := u.host
		if h == "" {
			h = k.name
		}
		u.instances = append(u.instances, instance{h, k.name, k.name, u.name})
	}
	return out
}

// attributes removes the attributes from one parameter.
func attributes(p []tok) (clean []tok, a argument) {
	if c := code(p); len(c) > 0 {
		a.at = c[0]
	}
	for i := 0; i < len(p); i++ {
		if p[i].s != "[[" {
			clean = append(clean, p[i])
			continue
		}
		e := match(p, i)
		for _, x := range split(p[i+1 : e]) {
			switch n := x[0].s; {
			case n == "buffer" && len(x) > 3:
				a.kind, a.index = "MK_BUF", text(x[2:len(x)-1])
			case n == "threadgroup" && len(x) > 3:
				a.kind, a.index = "MK_TGMEM", text(x[2:len(x)-1])
			case attributeKinds[n] != "":
				a.kind, a.index = attributeKinds[n], "0"
			default:
				lint(x[0], "attribute [[%s]] is not known", n)
			}
		}
		i = e
	}
	for _, t := range code(clean) {
		if t.s != "const" && t.s != "constant" && a.typ == "" {
			a.typ = t.s
		}
	}
	return clean, a
}

// block reads a block in braces: the body of a function or type, or an
// initializer. A namespace is walked through.
func (u *unit) block(i int) int {
	decl := code(u.out[u.start:])
	if len(decl) > 0 && decl[0].s == "namespace" {
		u.out = append(u.out, u.ts[i])
		u.reset()
		return i
	}
	e := match(u.ts, i)
	body := u.ts[i : e+1]
	fn := len(decl) > 0 && (decl[len(decl)-1].s == ")" || decl[len(decl)-1].s == "const" && has(decl, ")"))
	lintWords(body)
	r := rewriter{known: u.known, kernel: u.kernel, body: fn}
	u.out = append(u.out, r.rewrite(body)...)
	if fn {
		if u.kernel && !has(decl, "void") {
			lint(u.name, "kernel %s does not return void", u.name.s)
		}
		lintBody(body)
		u.define(body)
		u.reset()
	}
	return e
}

// define records what a function calls and names.
func (u *unit) define(body []tok) {
	f := u.functions[u.name.s]
	if f == nil {
		f = &function{at: u.name, asks: map[string]bool{}}
		u.functions[u.name.s] = f
	}
	f.overloads++
	c := code(body)
	for i, t := range c {
		if t.kind != 'i' {
			continue
		}
		f.names = append(f.names, t.s)
		if i+1 < len(c) && c[i+1].s == "(" && c[i-1].s != "." && c[i-1].s != "->" {
			f.calls = append(f.calls, t.s)
		}
		if t.s == "is_function_constant_defined" && i+2 < len(c) {
			f.asks[c[i+2].s] = true
		}
	}
}

// declaration ends a declaration without a body.
func (u *unit) declaration(t tok) {
	all := u.out[u.start:]
	d := code(all)
	eq, uses := 0, false
	for q, x := range d {
		if x.s == "=" && eq == 0 {
			eq = q
		}
		uses = uses || eq > 0 && u.isConst[x.s]
	}
	if len(d) > 3 && has(d, "constant") && uses { // a value derived from function constants: found where it is used
		name := d[eq-1].s
		u.isConst[name] = true
		u.derived[name] = append([]tok{}, d[eq+1:]...)
		expr := strings.ReplaceAll(text(d[eq+1:]), "\n", " ")
		at := d[0]
		u.out = append(u.out[:u.start], tok{ws: lines(all) + "\n", s: "#define " + name + " (" + expr + ")", kind: '#'},
			tok{ws: "\n", s: fmt.Sprintf("# %d %q", at.line+strings.Count(lines(all), "\n"), at.file), kind: '#'})
		u.reset()
		return
	}
	if !u.template {
		lintGlobal(d)
	}
	u.vectors.alias(d)
	u.out = append(u.out, t)
	u.reset()
}
