package arch

import (
	"errors"
	"io/fs"
	"strings"

	"ringmaster/gguf"
	"ringmaster/internal/usage"
)

// Explain is the error of a model's file; one that is not there has a cure.
func Explain(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(path.Path, "~") {
		return usage.Errorf("--model: %w; the shell does not replace ~ behind = or in quotes: write the whole path, or $HOME", err)
	}
	if _, ok := errors.AsType[*gguf.MissingPart](err); ok {
		return usage.Errorf("--model: %w; ringmaster pull fetches the parts that are missing", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return usage.Errorf("--model: %w; give the GGUF file of a model, or fetch one: ringmaster pull --help", err)
	}
	return usage.Errorf("--model: %w", err)
}
