package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ringmaster/gguf"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/tokenizer"
)

// checkOut refuses the path of a file to write, by the name of its flag, where none can be
// made: before the work whose result it is for. An empty one is none.
func checkOut(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usage.Errorf("--%s %s is a directory; give the name of a file in it", flag, path)
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return usage.Errorf("--%s: %w; make the directory first", flag, err)
	}
	if !info.IsDir() {
		return usage.Errorf("--%s: %s is no directory", flag, filepath.Dir(path))
	}
	return nil
}

// readInput reads a file of at most most bytes that a flag names.
func readInput(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d MiB; is it the right file?", path, most>>20)
	}
	return text, err
}

// checkDir refuses the path of a directory that is something else. One that is not there
// is made when it is needed.
func checkDir(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usage.Errorf("--%s: %w; expected a directory", flag, err)
	case !info.IsDir():
		return usage.Errorf("--%s %s is a file; expected a directory", flag, path)
	}
	return nil
}

// modelFile is the error of a model's file; one that is not there has a cure.
func modelFile(err error) error {
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

// checkModel is nil if serve takes the model of a file: its vocabulary, its metadata, and
// the names, shapes and types of its tensors. It computes nothing and reads vectors only.
func checkModel(f *gguf.File) error {
	_, err := tokenizer.FromGGUF(f)
	t, opened := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		return arch.Open(f, b, decoder.OpenOptions{Context: 2, MaxTokens: 1})
	})
	if opened != nil {
		return errors.Join(opened, err)
	}
	return errors.Join(err, t.Close())
}
