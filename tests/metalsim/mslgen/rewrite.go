package main

import "strings"

// rewriter turns expressions and bodies of MSL into what clang accepts as C++.
type rewriter struct {
	known  types
	kernel bool // the body of a kernel
	body   bool // the body of a function
	depth  int  // nesting of braces
	parens int
	out    []tok
}

// tokens that may follow (T) if it is a cast
var castStart = map[string]bool{"(": true, "-": true, "!": true, "~": true, "*": true, "&": true}

func before(ts []tok, i int) tok {
	for j := i - 1; j >= 0; j-- {
		if ts[j].kind != '#' && ts[j].s != "" {
			return ts[j]
		}
	}
	return tok{}
}

func ends(t tok) bool { // t ends an operand
	return t.kind == 'i' && t.s != "return" && t.s != "case" && t.s != "else" || t.kind == 'n' || t.s == ")" || t.s == "]" || t.s == ">"
}

// rewrite rewrites a range of tokens.
func (r *rewriter) rewrite(ts []tok) []tok {
	for i := 0; i < len(ts); i++ {
		t := ts[i]
		if n := r.special(ts, i); n > 0 {
			i += n - 1
			continue
		}
		switch t.s {
		case "(":
			r.parens++
		case ")":
			r.parens--
		case "{":
			r.depth++
		case "}":
			r.depth--
		}
		r.out = append(r.out, t)
	}
	return r.out
}

func (r *rewriter) emit(ws, s string) { r.out = append(r.out, tok{ws: ws, s: s, kind: 'i'}) }

// special rewrites the construct that begins at i and returns how many tokens
// it took.
func (r *rewriter) special(ts []tok, i int) int {
	t := ts[i]
	switch {
	case t.kind == '#' && strings.HasPrefix(t.s, "#pragma"): // loop hints
		r.out = append(r.out, tok{ws: t.ws})
		return 1
	case t.s == "[[": // attributes of statements and in typedefs
		r.out = append(r.out, tok{ws: t.ws})
		return match(ts, i) + 1 - i
	case t.kind == 'n' && strings.HasSuffix(t.s, "h") && !strings.HasPrefix(t.s, "0x"):
		r.emit(t.ws, "((half)"+strings.TrimSuffix(t.s, "h")+"f)")
		return 1
	case r.body && t.s == "=" && i+4 < len(ts) && ts[i+1].s == "{" && ts[i+2].s == "[" && ts[i+4].s == "...":
		return r.rangeInit(ts, i)
	case t.s == "(":
		return r.cast(ts, i)
	case r.body && t.s == "threadgroup" && r.parens == 0:
		return r.threadgroup(ts, i)
	case t.kind == 'i':
		if r.body && (t.s == "typedef" || t.s == "using") {
			e := i
			for e < len(ts) && ts[e].s != ";" {
				e++
			}
			r.known = r.known.with(nil)
			r.known.alias(ts[i:e])
		}
		return r.construct(ts, i)
	}
	return 0
}

// rangeInit: T a[N] = { [0 ... N-1] = v } makes clang crash in templates.
func (r *rewriter) rangeInit(ts []tok, i int) int {
	e, b := match(ts, i+1), match(ts, i+2)
	j := len(r.out) - 1
	for ; j > 0 && r.out[j].s != "["; j-- {
	}
	r.emit("", "; for (auto& msl_e : "+r.out[j-1].s+") msl_e = "+text(ts[b+2:e]))
	return e + 1 - i
}

// cast: (T)x with a vector T.
func (r *rewriter) cast(ts []tok, i int) int {
	n := r.known.at(ts, i+1)
	if n == 0 || i+n+2 >= len(ts) || ts[i+n+1].s != ")" || ends(before(ts, i)) {
		return 0
	}
	if next := ts[i+n+2]; next.kind != 'i' && next.kind != 'n' && !castStart[next.s] {
		return 0
	}
	r.emit(ts[i].ws, "msl_cc<"+text(ts[i+1:i+1+n])+">()->*")
	return n + 2
}

// construct: T(args), and T v(args); but not the declarator T (*f)(...).
func (r *rewriter) construct(ts []tok, i int) int {
	n := r.known.at(ts, i)
	p := before(ts, i).s
	if n == 0 || i+n >= len(ts) || p == "." || p == "->" || p == "::" || p == "typename" || p == "class" {
		return 0
	}
	name := strings.TrimSpace(text(ts[i : i+n]))
	next := ts[i+n]
	if next.s == "(" {
		e := match(ts, i+n)
		if i+n+1 < len(ts) && ts[i+n+1].s == "*" && e+1 < len(ts) && ts[e+1].s == "(" {
			return 0
		}
		r.emit(ts[i].ws, "msl_ctor<"+name+">")
		return n
	}
	if r.body && r.parens == 0 && next.kind == 'i' && i+n+1 < len(ts) && ts[i+n+1].s == "(" {
		if e := match(ts, i+n+1); e+1 < len(ts) && (ts[e+1].s == ";" || ts[e+1].s == ",") {
			r.emit(ts[i].ws, name+" "+next.s+" = msl_ctor<"+name+">")
			return n + 1
		}
	}
	return 0
}

// threadgroup: a threadgroup variable becomes static, in a section of its own,
// and registers its size with the runtime. Pointers stay as they are.
func (r *rewriter) threadgroup(ts []tok, i int) int {
	if p := before(ts, i).s; p != "{" && p != "}" && p != ";" {
		return 0
	}
	e := i
	for e < len(ts) && ts[e].s != ";" {
		e++
	}
	decl := ts[i+1 : e]
	var notes strings.Builder
	for _, d := range split(decl) {
		d = code(d)
		k := 0
		for k < len(d) && d[k].s != "[" && d[k].s != "=" {
			if d[k].s == "*" || d[k].s == "&" {
				return 0
			}
			k++
		}
		if k < len(d) && d[k].s == "=" {
			lint(d[k], "a threadgroup variable cannot have an initial value")
		}
		if k > 0 {
			notes.WriteString(" MSL_TGNOTE(" + d[k-1].s + ");")
		}
	}
	if !r.kernel || r.depth != 1 {
		lint(ts[i], "a threadgroup variable must stand in the outermost block of a kernel")
	}
	r.emit(ts[i].ws, "MSL_TGVAR")
	sub := rewriter{known: r.known}
	r.out = append(r.out, sub.rewrite(decl)...)
	if len(split(decl)) == 1 {
		// C++ has no constructor for a class in an address space, and an atomic
		// is a class here. The section is still poisoned before each
		// threadgroup.
		r.emit("", " = {}")
	}
	r.emit("", ";"+notes.String())
	return e + 1 - i
}
