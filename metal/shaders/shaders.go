// Package shaders has the kernels in the Metal shading language and puts them together
// as the libraries that a device compiles.
package shaders

import (
	"embed"
	"fmt"
	"strings"

	"ringmaster/kernels/gpu/args"
)

//go:embed *.metal
var files embed.FS

// Named is a library: its name and its files, in the order in which they are compiled.
type Named struct {
	Name  string
	Files []string
}

// Libraries are the kernels that are compiled together, with their files of this folder
// and of kernels/gpu/args.
var Libraries = []Named{
	{"embed", []string{"quant.metal", "matmul.h", "embed.metal"}},
	{"GEMV", []string{"quant.metal", "matmul.h", "gemv_many.h", "swiglu.metal", "squares.metal", "gemv.metal"}},
	{"GEMM", []string{"quant.metal", "matmul.h", "gemm.metal"}},
	{"experts, GEMV", []string{"quant.metal", "experts.h", "swiglu.metal", "experts.metal", "experts_gemv.metal"}},
	{"experts, GEMM", []string{"quant.metal", "experts.h", "swiglu.metal", "experts.metal", "experts_gemm.metal"}},
	{"norms", []string{"rotate.metal", "float16.metal", "norms.h", "squares.metal", "norms.metal"}},
	{"elementwise", []string{"float16.metal", "elementwise.h", "swiglu.metal", "elementwise.metal"}},
	{"hyper-connections", []string{"rotate.metal", "hyper.h", "hyper.metal"}},
	{"KV cache", []string{"rotate.metal", "float16.metal", "kv_cache.h", "kv_cache.metal"}},
	{"index", []string{"rotate.metal", "index.h", "index.metal"}},
	{"attend", []string{"rotate.metal", "squares.metal", "attend.h", "attend.metal"}},
	{"route", []string{"route.h", "route.metal"}},
}

// Library is the text of a library of kernels: prelude.metal, then the named files in
// order, the tables of the codebook types before quant.metal, which decodes with them.
// #line directives make the compiler's messages name file and line.
func Library(names ...string) (string, error) {
	var s strings.Builder
	add := func(name, text string) { fmt.Fprintf(&s, "#line 1 %q\n%s\n", name, text) }
	for _, name := range append([]string{"prelude.metal"}, names...) {
		from := files
		if strings.HasSuffix(name, ".h") {
			from = args.Files
		}
		text, err := from.ReadFile(name)
		if err != nil {
			return "", err
		}
		if name == "quant.metal" {
			add("tables", tables())
		}
		add(name, string(text))
	}
	return s.String(), nil
}
