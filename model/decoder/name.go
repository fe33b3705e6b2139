package decoder

import (
	"ringmaster/gguf"
	"ringmaster/internal/safetext"
)

// maxName bounds a model's name, in bytes, because a file may have one of any length.
// With the count of the cut bytes it is still a name that a request may have
// (dialect.MaxModelName).
const maxName = 200

// Name is the model's name as its file gives it, on one line and without what a terminal
// could obey.
func Name(f *gguf.File) string {
	name, _ := f.String("general.name")
	return safetext.Line(name, maxName)
}
