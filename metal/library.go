//go:build (darwin && cgo) || metalsim

package metal

import (
	"embed"
	"fmt"
	"strings"
)

// Available reports whether this build can open a Metal device.
const Available = true

//go:embed shaders
var shaders embed.FS

// library is a set of kernels that are compiled together. Its source is
// prelude.metal and then its files in order.
type library struct {
	name  string
	files []string
}

// kernel is a kernel of a library.
type kernel struct {
	library int
	name    string
	number  int // in allKernels
	// rare kernels are instances for one weight type. Their pipelines are made when first
	// used, because a model has few of the types.
	rare bool
}

// All libraries and kernels, registered by package variables of the ops.
var (
	libraries  []library
	allKernels []*kernel
)

// newLibrary registers a library made of files of shaders/. tables.metal must come before
// quant.metal.
func newLibrary(name string, files ...string) int {
	all := []string{"prelude.metal"}
	for _, f := range files {
		if f == "quant.metal" {
			all = append(all, "tables.metal")
		}
		all = append(all, f)
	}
	libraries = append(libraries, library{name, all})
	return len(libraries) - 1
}

// newKernel registers a kernel of a library by its name.
func newKernel(library int, name string) *kernel {
	k := &kernel{library: library, name: name, number: len(allKernels)}
	allKernels = append(allKernels, k)
	return k
}

// source is the text of the library, with #line directives so that the compiler's
// messages name file and line.
func (l *library) source() (string, error) {
	var s strings.Builder
	for _, f := range l.files {
		text, err := shaders.ReadFile("shaders/" + f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&s, "#line 1 %q\n%s\n", f, text)
	}
	return s.String(), nil
}
