//go:build (darwin && cgo) || metalsim

package metal

// Available reports whether this build can open a Metal device.
const Available = true

// library is a set of kernels that are compiled together, and its files of shaders/.
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

// newLibrary registers a library made of files of shaders/.
func newLibrary(name string, files ...string) int {
	libraries = append(libraries, library{name, files})
	return len(libraries) - 1
}

// newKernel registers a kernel of a library by its name.
func newKernel(library int, name string) *kernel {
	k := &kernel{library: library, name: name, number: len(allKernels)}
	allKernels = append(allKernels, k)
	return k
}
