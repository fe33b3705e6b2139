package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine/diskcache"
	"ringmaster/groupplan"
)

// TestTheHeapHasTheGrammars: what is kept of grammars is part of the plan, and a sixteenth of
// --memory where that is little.
func TestTheHeapHasTheGrammars(t *testing.T) {
	var o Options
	none := o.Heap(16) - 1
	require.EqualValues(t, groupplan.LeastHeap, none)
	require.Equal(t, none+dialect.DefaultGrammars, o.Heap(0))
	require.Equal(t, none+dialect.DefaultGrammars, o.Heap(64<<30))
	require.Equal(t, none+(120<<20)/16, o.Heap(120<<20))
	o.Disk.Dir = "x"
	require.Equal(t, none+dialect.DefaultGrammars+int64(diskcache.MemoryBytes)+run.DefaultReplays, o.Heap(0))
}
