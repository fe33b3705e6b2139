package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// needs returns the ids of the function constants that a kernel reads without
// checking whether they are defined.
func (u *unit) needs(kernel string) []string {
	ids := map[string]string{}
	for _, c := range u.constants {
		ids[c.name] = c.id
	}
	found, seen := map[string]bool{}, map[string]bool{}
	var visit func(names []string, asks map[string]bool)
	visit = func(names []string, asks map[string]bool) {
		for _, n := range names {
			if id, ok := ids[n]; ok {
				if !asks[n] {
					found[id] = true
				}
				continue
			}
			if seen[n] {
				continue
			}
			if ex, ok := u.derived[n]; ok {
				seen[n] = true
				var inner []string
				ask := map[string]bool{}
				c := code(ex)
				for i, t := range c {
					inner = append(inner, t.s)
					if t.s == "is_function_constant_defined" && i+2 < len(c) {
						ask[c[i+2].s] = true
					}
				}
				visit(inner, ask)
			}
			if f := u.functions[n]; f != nil {
				seen[n] = true
				visit(f.names, f.asks)
			}
		}
	}
	visit([]string{kernel}, nil)
	var out []string
	for id := range found {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// write writes the C++ source and the tables of kernels and constants.
func (u *unit) write(w io.Writer) {
	fmt.Fprintln(w, `#include "msl_shim.h"`)
	fmt.Fprintln(w, `#define is_function_constant_defined(x) x##_msl_def`)
	fmt.Fprint(w, text(u.out))
	fmt.Fprintln(w)
	fmt.Fprintln(w, `# 1 "mslgen-registry"`)
	for _, name := range u.order {
		fmt.Fprintf(w, "static const msl_arg msl_a_%s[] = {", name)
		for _, a := range u.kernels[name].args {
			fmt.Fprintf(w, "{%s,%s},", a.kind, strings.TrimSpace(a.index))
		}
		fmt.Fprintln(w, "{0,0}};")
		fmt.Fprintf(w, "static const int msl_n_%s[] = {%s};\n", name, strings.Join(append(u.needs(name), "-1"), ","))
	}
	fmt.Fprintln(w, `extern "C" const msl_kernel msl_kernels[] = {`)
	hosts := map[string]bool{}
	for _, in := range u.instances {
		k := u.kernels[in.kernel]
		if k == nil {
			lint(in.at, "no kernel %s for %s", in.kernel, in.host)
			continue
		}
		if hosts[in.host] {
			lint(in.at, "two kernels are called %s", in.host)
		}
		hosts[in.host] = true
		fmt.Fprintf(w, "MSL_KERNEL(%q, %d, msl_a_%s, msl_n_%s, %s),\n", in.host, len(k.args), in.kernel, in.kernel, in.expr)
	}
	fmt.Fprintln(w, `{0,0,0,0,0,0,0}};`)
	fmt.Fprintln(w, `extern "C" const msl_fconst msl_fconsts[] = {`)
	for _, c := range u.constants {
		fmt.Fprintf(w, "MSL_FCONST(%s,%s),\n", c.name, c.id)
	}
	fmt.Fprintln(w, `{0,0,0,0,0}};`)
}
