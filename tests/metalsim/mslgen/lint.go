package main

import (
	"fmt"
	"io"
	"sort"
	"strings"
)

// problems are errors that Apple's compiler reports and clang does not.
var problems []string

func lint(t tok, format string, args ...any) {
	problems = append(problems, fmt.Sprintf("%s:%d: error: %s", t.file, t.line, fmt.Sprintf(format, args...)))
}

func report(w io.Writer) {
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
}

// words that are C++ but not MSL
var foreign = map[string]string{
	"double": "there is no double in MSL", "std": "there is no std in MSL", "throw": "", "try": "", "catch": "", "new": "", "delete": "",
	"goto": "", "virtual": "", "dynamic_cast": "", "typeid": "", "thread_local": "", "register": "", "noexcept": "", "asm": "", "__asm__": "",
}

func lintWords(ts []tok) {
	c := code(ts)
	for i, t := range c {
		if why, bad := foreign[t.s]; bad && t.kind == 'i' {
			if why == "" {
				why = t.s + " is not MSL"
			}
			lint(t, "%s", why)
		}
		if t.s == "[" && i > 0 && !ends(c[i-1]) && c[i-1].s != "operator" {
			if e := match(c, i); e+1 < len(c) && (c[e+1].s == "(" || c[e+1].s == "{") {
				lint(t, "lambdas are not MSL before version 4")
			}
		}
	}
}

// lintBody checks the body of a function.
func lintBody(ts []tok) {
	c := code(ts)
	for i, t := range c {
		if t.s == "static" && t.kind == 'i' && i+1 < len(c) && !has(c[i+1:min(i+4, len(c))], "constant", "constexpr") {
			lint(t, "a static variable must be constant")
		}
	}
}

// lintPointers checks for pointers without an address space among the
// parameters of a function that is not a kernel.
func lintPointers(params []tok) {
	for _, q := range split(params) {
		if has(q, "*", "&") && !has(q, "device", "constant", "threadgroup", "thread") && !has(q, "(") {
			lint(q[0], "a pointer or reference needs an address space: %s", strings.TrimSpace(text(q)))
		}
	}
}

// lintGlobal checks a declaration at program scope.
func lintGlobal(decl []tok) {
	d := code(decl)
	if len(d) < 2 || has(d, "constant", "operator") {
		return
	}
	switch d[0].s {
	case "typedef", "using", "template", "static_assert", "namespace", "extern", "friend", "#":
		return
	case "enum", "struct", "class", "union":
		for i, t := range d {
			if t.s == "{" {
				if e := match(d, i); e+1 < len(d) {
					lint(d[e+1], "a variable of the program must be constant")
				}
				return
			}
		}
		if len(d) == 2 {
			return // forward declaration: struct S;
		}
	}
	for i, t := range d {
		if t.s == "(" { // a function, unless an initializer precedes it
			return
		}
		if t.s == "=" || t.s == "[" || i == len(d)-1 {
			break
		}
	}
	lint(d[0], "a variable of the program must be constant: %s", strings.TrimSpace(text(d[:min(4, len(d))])))
}

// vectorWidth splits "uint3" into its element type and width.
func vectorWidth(typ string) (element string, width int) {
	if n := len(typ); n > 0 && typ[n-1] >= '2' && typ[n-1] <= '4' {
		return typ[:n-1], int(typ[n-1] - '0')
	}
	return typ, 1
}

// lintPositions: in one kernel the position and size attributes have equal
// widths, and those of a pair have equal types.
func lintPositions(k *kernelInfo) {
	pair := map[string]string{"MK_TPIG": "grid", "MK_TPG": "grid", "MK_TPITG": "threadgroup", "MK_TPTG": "threadgroup",
		"MK_TGPIG": "threadgroups", "MK_TGPG": "threadgroups"}
	width, types := 0, map[string]string{}
	for _, a := range k.args {
		if a.kind == "MK_BUF" || a.kind == "MK_TGMEM" {
			continue
		}
		e, w := vectorWidth(a.typ)
		if e != "uint" && e != "ushort" || w == 4 {
			lint(a.at, "%s: the type of this attribute is %s; it is made of uint or ushort", k.name, a.typ)
			continue
		}
		p, positional := pair[a.kind]
		if !positional {
			if w != 1 {
				lint(a.at, "%s: this attribute is a scalar, not %s", k.name, a.typ)
			}
			continue
		}
		if width != 0 && w != width {
			lint(a.at, "%s: attributes of positions have %d and %d components", k.name, width, w)
		}
		width = w
		if o := types[p]; o != "" && o != e {
			lint(a.at, "%s: attributes of one kind have the types %s and %s", k.name, o, e)
		}
		types[p] = e
	}
}

// lintIndices: no two parameters have the same index.
func lintIndices(k *kernelInfo) {
	seen := map[string]bool{}
	for _, a := range k.args {
		if a.kind != "MK_BUF" && a.kind != "MK_TGMEM" {
			continue
		}
		key := a.kind + strings.TrimSpace(a.index)
		if seen[key] {
			lint(a.at, "%s: two parameters have index %s", k.name, strings.TrimSpace(a.index))
		}
		seen[key] = true
		var n int
		if m, _ := fmt.Sscan(a.index, &n); m == 1 && n > 30 {
			lint(a.at, "%s: index %d, the last one is 30", k.name, n)
		}
	}
}

// lintRecursion finds cycles of calls. Overloaded names are skipped: one
// overload may call another.
func lintRecursion(fns map[string]*function) {
	var names []string
	for n := range fns {
		names = append(names, n)
	}
	sort.Strings(names)
	state := map[string]int{} // 1: on the path, 2: done
	var visit func(n string)
	visit = func(n string) {
		f := fns[n]
		if f == nil || f.overloads > 1 || state[n] == 2 {
			return
		}
		if state[n] == 1 {
			lint(f.at, "%s calls itself", n)
			return
		}
		state[n] = 1
		for _, c := range f.calls {
			visit(c)
		}
		state[n] = 2
	}
	for _, n := range names {
		visit(n)
	}
}
