package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
)

// File is a model's file.
type File struct {
	Path      string   // of its first part; empty: the built-in model
	Overrides []string // of its metadata, KEY=TYPE:VALUE
}

// Name is the path, or what stands for that of the built-in model.
func (f File) Name() string {
	if f.Path == "" {
		return builtin.Name
	}
	return f.Path
}

// Open opens the file.
func (f File) Open() (*gguf.File, error) {
	open := builtin.Open
	if f.Path != "" {
		open = func() (*gguf.File, error) { return arch.OpenFile(f.Path) }
	}
	file, err := open()
	if err != nil {
		return nil, arch.Explain(err)
	}
	return f.override(file)
}

// OpenVocabulary is Open for a caller that uses only the vocabulary. Such a file may have
// no tensors, and is then of any architecture.
func (f File) OpenVocabulary() (*gguf.File, error) {
	if f.Path == "" {
		return f.Open()
	}
	file, err := gguf.Open(f.Path)
	if err == nil && len(file.Tensors()) == 0 {
		return f.override(file)
	}
	if err == nil {
		if err = file.Close(); err != nil {
			return nil, err
		}
	}
	return f.Open() // a file that does not open is named there, by its architecture first
}

// override applies the overrides to a file, which is closed after an error.
func (f File) override(file *gguf.File) (*gguf.File, error) {
	for _, text := range f.Overrides {
		was, err := file.Override(text)
		if err != nil {
			return nil, errors.Join(usage.Errorf("--override-kv: %s: %w", file.Path(), err), file.Close())
		}
		slog.Info("the model's metadata is overridden", "override", text, "previous", was)
	}
	return file, nil
}

// readRate is how fast this host reads the file, in bytes per second; 0 for the built-in
// model, which is in memory.
func (f File) readRate() (int64, error) {
	if f.Path == "" {
		return 0, nil
	}
	parts, err := gguf.Parts(f.Path)
	if err != nil {
		return 0, err
	}
	return gguf.ReadRate(parts)
}

// checkInterval is the time between two log lines of a check of the weights.
const checkInterval = 10 * time.Second

// checkWeights checks all weights of a file, and logs its progress and time.
func checkWeights(ctx context.Context, f *gguf.File) error {
	start, last := time.Now(), time.Now()
	var size int64
	err := gguf.CheckWeights(ctx, f, func(done, total int64) {
		size = total
		if time.Since(last) >= checkInterval {
			last = time.Now()
			slog.Info("checking the weights", "done", units.Bytes(done), "total", units.Bytes(total))
		}
	})
	if err != nil {
		return fmt.Errorf("--verify-model: %w", err)
	}
	slog.Info("all weights are finite numbers", "size", units.Bytes(size), "duration", time.Since(start).Round(time.Millisecond))
	return nil
}
