// Package gguf opens, checks, maps and writes GGUF model files.
//
//	f, err := gguf.Open("model.gguf") // or the first part of a split model
//	if err != nil { ... }
//	defer f.Close()
//	layers, err := f.RequireInt(f.Architecture() + ".block_count")
//	t, ok := f.Tensor("output.weight")
//	err = gguf.Dequantize(row, t.Type, t.Data[:t.Type.RowBytes(len(row))])
//
// Open checks every count, length, offset and size against the file before it decodes
// anything, because github.com/ollama/ollama/fs/ggml, which then reads the header, trusts
// its input. Tensor data are mapped: a page of weights is read when it is first used and
// never copied.
//
// The package also knows the block formats of the quantised types (Dequantize, grids),
// writes files (Writer), and identifies models (Fingerprint, ContentHash).
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
