package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine/diskcache"
	"ringmaster/groupplan"
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

// TestTheHeapHasTheGrammars: what is kept of grammars is part of the plan, and a sixteenth of
// --memory where that is little.
func TestTheHeapHasTheGrammars(t *testing.T) {
	var o serveOptions
	none := o.heap(16) - 1
	require.EqualValues(t, groupplan.LeastHeap, none)
	require.Equal(t, none+dialect.DefaultGrammars, o.heap(0))
	require.Equal(t, none+dialect.DefaultGrammars, o.heap(64<<30))
	require.Equal(t, none+(120<<20)/16, o.heap(120<<20))
	o.disk.given = "x"
	require.Equal(t, none+dialect.DefaultGrammars+int64(diskcache.MemoryBytes)+run.DefaultReplays, o.heap(0))
}
