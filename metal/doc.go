// Package metal is the kernels.Backend that computes on the GPU of a Mac.
//
// # Rooms
//
//	ops_*.go      the ops: check the arguments, choose a kernel and its grid
//	library.go    the kernels by name, and the libraries that they are compiled from
//	encode.go     the list of encoded dispatches, their hazards, Submit and Flush
//	memory.go     which buffer a slice lies in; views of mapped weights
//	device.go     opening, compiling, closing
//	host.h        the contract between Go and the host code
//	host.m        the host code: the only file that talks to Metal
//	shaders/      the kernels (*.metal), and the structs of their arguments (*.h)
//
// Go keeps a list of dispatches in memory of C. Submit and Flush hand it to the
// host code, which encodes it into one command buffer, with a barrier before
// every dispatch that needs the result of one before it. Activations lie in
// shared storage: what Alloc gives is what the GPU computes on. Weights are not
// copied: a buffer without copy covers the pages of each matrix in the mapping.
//
// # Arithmetic
//
// Weights are decoded to float32 and meet float32 activations. Products of a few
// rows go row by row through the lanes of a simdgroup, products of many through
// 8x8 matrices, so a row of a long product may differ from the row alone in the
// last bits (kernels.RowsAgree is false).
//
// Without Metal (another system, or no cgo) Open fails. The build tag metalsim
// builds the same files against a software device (tests/metalsim).
package metal
