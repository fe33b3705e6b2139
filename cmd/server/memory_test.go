package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemoryFlag: a model that does not fit --memory is refused with what it needs.
func TestMemoryFlag(t *testing.T) {
	ids := written(t, "1 2 3")
	for memory, want := range map[string]string{
		"20MiB":      "--memory allows 20.0 MiB",
		"20MB":       "--memory allows 19.1 MiB",
		"lots":       `--memory is "lots"; expected a size with its unit, such as 20GiB or 20GB, or unlimited`,
		"20":         `--memory is "20"; expected a size with its unit, such as 20GiB or 20GB, or unlimited`,
		"1048576GiB": "is free; lower it",
	} {
		_, err := command(t, "logits", "--memory", memory, "--tokens", ids, "--out", ids+".out")
		require.ErrorContains(t, err, want)
	}
}
