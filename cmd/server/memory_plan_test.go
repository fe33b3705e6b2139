package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/distributed/cluster"
	"ringmaster/engine/diskcache"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/replica"
)

// TestGroupBudget: the KV caches of a group have the memory of the rank that has
// least, after what it owns and its buffers; a rank with too little --memory for one
// sequence is named.
func TestGroupBudget(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const mib = 1 << 20
	plan := func(members ...cluster.Hello) (replica.Settings, error) {
		o := modelOptions{ctx: 4096, batch: 64, reduce: "sum", cluster: clusterOptions{on: true, size: len(members), wire: "f16", share: "experts"}}
		for i := range members {
			members[i].Rank, members[i].Size, members[i].Threads = i, len(members), 2
		}
		return o.planGroup(f, members, io.Discard, 16, 0)
	}
	p, err := arch.Plan(f, decoder.OpenOptions{Context: 4096, MaxTokens: 64}, 16)
	require.NoError(t, err)
	one := p.PerSequence()

	s, err := plan(cluster.Hello{}, cluster.Hello{})
	require.NoError(t, err)
	require.Equal(t, 16*one, s.SequenceBudget, "nothing limits it but the number of sequences")
	s, err = plan(cluster.Hello{OwnMemory: 999 * mib}, cluster.Hello{OwnMemory: 40 * mib})
	require.NoError(t, err)
	require.Greater(t, s.SequenceBudget, one)
	require.Less(t, s.SequenceBudget, int64(40*mib))
	tight, err := plan(cluster.Hello{OwnMemory: 999 * mib}, cluster.Hello{OwnMemory: 39 * mib})
	require.NoError(t, err)
	require.Equal(t, s.SequenceBudget-mib, tight.SequenceBudget)
	offered, err := plan(cluster.Hello{}, cluster.Hello{Memory: 40 * mib})
	require.NoError(t, err)
	less, err := plan(cluster.Hello{}, cluster.Hello{Memory: 39 * mib})
	require.NoError(t, err)
	require.Equal(t, offered.SequenceBudget-mib, less.SequenceBudget)
	_, err = plan(cluster.Hello{}, cluster.Hello{OwnMemory: 5 * mib})
	require.ErrorContains(t, err, "on rank 1 for buffers and one sequence")
	require.ErrorContains(t, err, "its --memory allows 5.0 MiB")
}

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
	require.EqualValues(t, leastHeap, none)
	require.Equal(t, none+dialect.DefaultGrammars, o.heap(0))
	require.Equal(t, none+dialect.DefaultGrammars, o.heap(64<<30))
	require.Equal(t, none+(120<<20)/16, o.heap(120<<20))
	o.disk.dir = "x"
	require.Equal(t, none+dialect.DefaultGrammars+int64(diskcache.MemoryBytes)+run.DefaultReplays, o.heap(0))
}
