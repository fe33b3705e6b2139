//go:build linux && cgo

package inguest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
	"ringmaster/tests/rdmavm/job"
)

// Where the job puts the program and a model.
const (
	program = "/bin/ringmaster"
	model   = "/tiny.gguf"
)

// serveLimit bounds the lifetime of a cluster in this test. Its ranks wait minutes for each
// other, because three of them have taken more than half a minute to connect on the emulated
// processor of a busy host.
const (
	serveLimit = 8 * time.Minute
	peerLimit  = "2m"
)

// cabled is the matrix of ranks that have one or two cables between every two
// of them, with a device at each end of each.
func cabled(ranks, cables int) matrix.Matrix {
	m := make(matrix.Matrix, ranks)
	for r := range m {
		m[r] = make([][]string, ranks)
	}
	next := 0
	for a := range ranks {
		for b := a + 1; b < ranks; b++ {
			for range cables {
				// Ports are taken in pairs; each rail has four.
				m[a][b] = append(m[a][b], job.Device(next/4, next%4))
				m[b][a] = append(m[b][a], job.Device(next/4, next%4+1))
				next += 2
			}
		}
	}
	return m
}

// TestServe: the answer of serve over RDMA through the kernel's stack is that
// of one rank, bit for bit.
func TestServe(t *testing.T) {
	const tokens = 6
	words, err := harness.ReadVocabulary(model)
	require.NoError(t, err)
	prompt := words.Prompt(1, 8)
	flags := []string{"--ctx", "512", "--reduce", "exact", "--peer-timeout", peerLimit, "--connect-timeout", "4m"}
	ask := func(t *testing.T, o harness.Options) *harness.Answer {
		ctx := testenv.Within(t, serveLimit)
		o.Program, o.Model = program, model
		o.Flags = append(flags, o.Flags...)
		c, err := harness.NewCluster(o)
		require.NoError(t, err)
		defer c.Close()
		defer func() {
			if t.Failed() {
				t.Log(c.Logs())
			}
		}()
		require.NoError(t, c.StartAll(ctx))
		start := time.Now()
		a, err := harness.Ask(ctx, c.Client, prompt, tokens)
		require.NoError(t, err)
		t.Logf("%d tokens in %v", tokens, time.Since(start))
		if o.Size > 1 {
			require.Regexp(t, `rdma (mesh|ring \[.*\]) of \d ranks, rails \d, RC`, c.Logs())
		}
		return a
	}
	one := ask(t, harness.Options{Size: 1})
	// A share that is given, because auto measures ops, which takes minutes on this processor.
	for _, c := range []struct {
		ranks, cables int
		share         string
	}{{2, 2, "experts"}, {3, 1, "all"}} {
		t.Run(fmt.Sprintf("ranks=%d, rails=%d", c.ranks, c.cables), func(t *testing.T) {
			file := testenv.WriteFile(t, filepath.Join(t.TempDir(), "devices.json"), cabled(c.ranks, c.cables).Format())
			many := ask(t, harness.Options{Size: c.ranks, Flags: []string{"--share", c.share, "--transport", "rdma", "--rdma-devices", file}})
			v := harness.CompareExact(one, many, len(prompt))
			require.Equal(t, -1, v.Position, "first other token: %+v", v)
			require.Equal(t, -1, v.Bits, "first other bit: %+v", v)
		})
	}
}
