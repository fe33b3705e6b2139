// Package metal is the kernels.Backend that runs on the GPU of a Mac.
//
//	b, err := metal.Open(metal.Options{})
//	if err != nil { ... } // *UnsuitableError where the host cannot run the kernels
//	defer b.Close()
//	b.RMSNorm(out, x, weight, rows, cols, eps) // encoded; out and x are from b.Alloc
//	err = b.Flush()                            // submitted and awaited
//
// # Files
//
//	ops_*.go      the ops: check arguments, choose a kernel and its grid
//	library.go    the kernels by name, and the libraries they are compiled from
//	encode.go     the command list, hazards between dispatches, Submit and Flush
//	memory.go     from slices to buffers; views of mapped weights
//	device.go     opening, compiling, closing
//	host.h        the contract between Go and the host code
//	host.m        the host code: the only file that talks to Metal
//	shaders/      the kernels (*.metal) and their argument structs (*.h)
//
// Go keeps a list of dispatches in C memory. Submit and Flush pass it to the host code,
// which encodes it into one command buffer, with a barrier before every dispatch that
// depends on an earlier one. Activations are in shared storage, so that the GPU computes
// on the memory that Alloc returns. Weights are not copied, because no-copy buffers cover
// the pages of each matrix in the mapped file.
//
// # Arithmetic
//
// Weights are decoded to float32 and multiplied with float32 activations. A few rows are
// computed by GEMV, many by GEMM with 8x8 simdgroup matrices. A row of a large batch may
// therefore differ in the last bits from the same row alone (kernels.RowsAgree is false).
//
// Without Metal (another system, or no cgo) Open fails. The build tag metalsim builds the
// same files against a software device (tests/metalsim).
package metal
