package main

// types knows which names are vectors or matrices, or may be: template parameters and
// aliases of such. Conversions to these are rewritten, because clang's C++ rejects them
// or, worse, reinterprets the bits.
type types map[string]bool

func newTypes() types {
	t := types{}
	for _, b := range []string{"float", "half", "bfloat", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "bool"} {
		for _, n := range []string{"2", "3", "4"} {
			t[b+n] = true
		}
	}
	for _, b := range []string{"float", "half"} {
		for _, n := range []string{"2x2", "2x3", "2x4", "3x3", "4x2", "4x4"} {
			t[b+n] = true
		}
	}
	return t
}

// with returns a copy that also has the type parameters of template<...>.
func (t types) with(params []tok) types {
	out := types{}
	for k := range t {
		out[k] = true
	}
	for i := 0; i+1 < len(params); i++ {
		if (params[i].s == "typename" || params[i].s == "class") && params[i+1].kind == 'i' {
			out[params[i+1].s] = true
		}
	}
	return out
}

// alias learns from "typedef T name;" and "using name = T;".
func (t types) alias(decl []tok) {
	d := code(decl)
	if len(d) < 3 {
		return
	}
	vector := func(ts []tok) bool {
		if has(ts, "*", "&", "(", "decltype") {
			return false
		}
		for _, x := range ts {
			if t[x.s] || x.s == "vec" || x.s == "matrix" {
				return true
			}
		}
		return false
	}
	switch {
	case d[0].s == "typedef" && vector(d[1:len(d)-1]):
		t[d[len(d)-1].s] = true
	case d[0].s == "using" && d[2].s == "=" && vector(d[3:]):
		t[d[1].s] = true
	}
}

// at returns how many tokens the vector type at i has, 0 if there is none.
func (t types) at(ts []tok, i int) int {
	if i >= len(ts) || ts[i].kind != 'i' {
		return 0
	}
	switch s := ts[i].s; {
	case (s == "vec" || s == "matrix") && i+1 < len(ts) && ts[i+1].s == "<":
		if e := angle(ts, i+1); ts[e].s == ">" {
			return e + 1 - i
		}
	case s == "typename":
		j := i + 1
		for j+2 < len(ts) && ts[j].kind == 'i' && ts[j+1].s == "::" {
			j += 2
		}
		if j > i+1 && ts[j].kind == 'i' {
			return j + 1 - i
		}
	case t[s]:
		return 1
	}
	return 0
}
