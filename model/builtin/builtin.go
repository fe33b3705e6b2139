// Package builtin holds the model that is part of the program: a small one of the
// deepseek4 architecture with every kind of layer, trained by scripts/train on generated
// text. It knows a few facts, small sums and good manners, and shows that an installation
// works. Open returns it as a gguf.File.
package builtin

import (
	_ "embed"

	"ringmaster/gguf"
)

//go:embed builtin.gguf
var file []byte

// Name is how the model is called where a file would have its path.
const Name = "built-in model"

// Open reads the model. Its data are part of the program; the File has its own copy in
// memory, because kernels in C keep pointers into it.
func Open() (*gguf.File, error) { return gguf.Read(Name, file) }
