// Package gpu is the kernels.Backend of any GPU: it turns ops into dispatches of kernels,
// which a Device runs. Packages metal and
// kernels/vulkan have devices.
//
//	b, err := gpu.New(device)
//	defer b.Close()                            // closes the device too
//	b.RMSNorm(out, x, weight, rows, cols, eps) // encoded; out and x are from b.Alloc
//	err = b.Flush()                            // submitted and awaited
//
// # Files
//
//	device.go, device.h  what a device is: an interface for what is slow, a table of C
//	                     functions for what every step calls
//	backend.go    opening, pipelines, closing
//	ops_*.go      the ops: check arguments, choose a kernel and its grid
//	library.go    the kernels by name
//	encode.go     the command list, hazards between dispatches, Submit and Flush
//	count*.go     what was submitted and awaited, for people
//	prepare.go    the pipelines of a model's types
//	try.go        a trial of each type against the CPU
//	memory.go     from slices to buffers; views of mapped weights
//	args/         the argument structs of the kernels, for every shading language
//
// The list of dispatches is in C memory. Submit and Flush pass it to the device with a
// barrier before every dispatch that depends on an earlier one. The device computes on the
// memory that Alloc returns; weights are views of the pages of each matrix in the mapped
// file.
//
// # Arithmetic
//
// A device with Info.Packed multiplies as the CPU does, with its bits (packed.go). For others
// weights are decoded to float32 and multiplied with float32 activations. A few rows are
// computed by GEMV, many by tiles.
//
// It needs cgo.
package gpu
