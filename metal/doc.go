// Package metal is the kernels.Backend that runs on the GPU of a Mac.
//
//	b, err := metal.Open(metal.Options{})
//	if err != nil { ... } // *UnsuitableError where the host cannot run the kernels
//	defer b.Close()
//	b.RMSNorm(out, x, weight, rows, cols, eps) // encoded; out and x are from b.Alloc
//	err = b.Flush()                            // submitted and awaited
//
// The ops are those of package gpu, which turns them into dispatches; here is the device:
//
//	device.go     opening, compiling, closing; how much work a command buffer may have
//	host.h        the contract between Go and the host code
//	host.m        the host code: the only file that talks to Metal
//	residency.m   memory that stays wired
//	shaders/      the kernels (*.metal)
//
// A list of dispatches becomes one command buffer. Activations are in shared storage, so
// that the GPU computes on the memory that Alloc returns. Weights are not copied, because
// no-copy buffers cover the pages of each matrix in the mapped file.
//
// # Arithmetic
//
// A few rows are computed by GEMV, many by GEMM with 8x8 simdgroup matrices. A row of a
// large batch may therefore differ in the last bits from the same row alone
// (kernels.RowsAgree is false).
//
// Without Metal (another system, or no cgo) Open fails. The build tag metalsim builds the
// same files against a software device (tests/metalsim).
package metal
