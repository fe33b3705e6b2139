//go:build cgo

package gpu

// kernel is a kernel of a library: kernels that a device may compile together.
type kernel struct {
	library string
	name    string
	number  int // in allKernels
	// rare kernels are instances for one weight type. Their pipelines are made by Prepare for
	// the types of a model, which are few, or when first used.
	rare bool
}

// allKernels are registered by package variables of the ops.
var allKernels []*kernel

// newKernel registers a kernel of a library by its name.
func newKernel(library, name string) *kernel {
	k := &kernel{library: library, name: name, number: len(allKernels)}
	allKernels = append(allKernels, k)
	return k
}
