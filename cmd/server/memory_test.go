package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemoryFlag: a model that does not fit --memory is refused with what it needs.
func TestMemoryFlag(t *testing.T) {
	ids, out := filepath.Join(t.TempDir(), "ids"), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(ids, []byte("1 2 3"), 0o644))
	_, err := command(t, "logits", "--memory", "20MiB", "--tokens", ids, "--out", out)
	require.ErrorContains(t, err, "--memory allows 20.0 MiB")
	_, err = command(t, "logits", "--memory", "lots", "--tokens", ids, "--out", out)
	require.ErrorContains(t, err, `--memory is "lots"; expected a size`)
	_, err = command(t, "logits", "--memory", fmt.Sprint(1<<50), "--tokens", ids, "--out", out)
	require.ErrorContains(t, err, "is free; lower it")
}
