package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"ringmaster/internal/progress"
	"ringmaster/internal/pull"
	"ringmaster/internal/usage"
)

// hubOptions are those of a pull that the environment has.
func hubOptions() pull.Options {
	return pull.Options{Token: os.Getenv("HF_TOKEN"), Endpoint: os.Getenv("HF_ENDPOINT")}
}

// fetch replaces a --model that says where a model is fetched from by the path of its
// file. A model that was fetched before is used without asking the server.
func (o *modelOptions) fetch(ctx context.Context, w io.Writer) error {
	file := &o.node.File
	if !strings.HasPrefix(file.Path, "hf:") && !strings.Contains(file.Path, "://") {
		return nil
	}
	dir, err := modelsDir()
	if err != nil {
		return usage.Errorf("--model %s: %w", file.Path, err)
	}
	options := hubOptions()
	options.Dir, options.DirSetting, options.Report = dir, "XDG_CACHE_HOME", progress.New(w)
	paths, err := pull.Kept(ctx, file.Path, options)
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped; what was fetched is kept: run the same command again to resume")
	}
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	file.Path = paths[0]
	return nil
}

// modelsDir is the folder of the models that --model has fetched, and join has copied.
func modelsDir() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for models: %w; set XDG_CACHE_HOME, or fetch the model with 'ringmaster pull'", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "ringmaster", "models"), nil
}
