//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/elements.h"
import "C"

import "ringmaster/kernels/contract"

var (
	elementLibrary = newLibrary("elements", "elements.h", "elements.metal")
	addKernel      = newKernel(elementLibrary, "add")
)

// Add: see kernels.Backend.
func (b *Backend) Add(out, x, y []float32, n int) {
	const op = "Add"
	b.live(op)
	contract.Add(out, x, y, n)
	args := C.struct_rm_elements{n: C.int32_t(n)}
	dispatch(b, op, addKernel, &args, elements(n),
		slice(b, op, out, n, writes), slice(b, op, x, n, reads), slice(b, op, y, n, reads))
}
