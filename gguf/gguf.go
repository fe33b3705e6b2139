// Package gguf opens GGUF model files: it checks every count, length, offset
// and size against the file before anything is decoded, reads the header with
// github.com/ollama/ollama/fs/ggml, and maps the tensor data, so that a page of
// weights is read when it is first used and never copied.
//
// It also knows the block formats of the quantised types (Dequantize, grids).
package gguf

// Tensor is one tensor of a model file.
type Tensor struct {
	Name string
	Type Type
	// Shape holds the lengths in GGUF's order: Shape[0] is the length of a
	// row (fastest index), then the number of rows, then of matrices.
	Shape []int64
	// Data is the tensor's bytes in the mapped file. It is read-only (a
	// write faults) and valid until File.Close.
	Data []byte
	// Part is the 0-based number of the split file that holds the tensor.
	Part int
}
