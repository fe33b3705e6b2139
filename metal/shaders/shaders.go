// Package shaders has the kernels in the Metal shading language and puts them together
// as the libraries that a device compiles.
package shaders

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.metal *.h
var files embed.FS

// Library is the text of a library of kernels: prelude.metal, then the named files in
// order, the tables of the codebook types before quant.metal, which decodes with them.
// #line directives make the compiler's messages name file and line.
func Library(names ...string) (string, error) {
	var s strings.Builder
	add := func(name, text string) { fmt.Fprintf(&s, "#line 1 %q\n%s\n", name, text) }
	for _, name := range append([]string{"prelude.metal"}, names...) {
		text, err := files.ReadFile(name)
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
