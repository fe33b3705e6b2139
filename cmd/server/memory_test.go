package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemoryFlag: a model that does not fit --memory is refused with what it needs.
func TestMemoryFlag(t *testing.T) {
	ids := written(t, "1 2 3")
	for memory, want := range map[string]string{
		"20MiB":            "--memory allows 20.0 MiB",
		"lots":             `--memory is "lots"; expected a size`,
		"1125899906842624": "is free; lower it",
	} {
		_, err := command(t, "logits", "--memory", memory, "--tokens", ids, "--out", ids+".out")
		require.ErrorContains(t, err, want)
	}
}
