//go:build unix

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/tests/cluster/harness"
)

// TestLogits: the command logits writes the same bytes on one rank and on
// groups, for which the other ranks run serve. They wait for the next command.
func TestLogits(t *testing.T) {
	t.Parallel()
	m := model(t, slowModel)
	v, err := harness.ReadVocabulary(m)
	require.NoError(t, err)
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte(strings.Trim(fmt.Sprint(v.Prompt(seed, 150)), "[]")), 0o644))

	// run runs logits as rank 0 and returns what it wrote.
	run := func(b *bed) []byte {
		out := filepath.Join(t.TempDir(), "logits")
		require.NoError(t, b.StartArgs(0, b.Args(0, "logits", "--tokens", tokens, "--out", out)))
		code, err := b.Rank(0).Wait(within(t, patience))
		require.NoError(t, err)
		require.Zero(t, code, "%s", b.Rank(0).Log)
		bytes, err := os.ReadFile(out)
		require.NoError(t, err)
		require.NotEmpty(t, bytes)
		return bytes
	}
	// serve alone has a flag for chunks.
	bare := func(size int, flags ...string) *bed {
		b := newBed(t, harness.Options{Size: size, Model: m})
		b.Flags = append([]string{"--ctx", "8192", "--reduce", "exact", "--peer-timeout", "20s"}, flags...)
		return b
	}
	one := run(bare(1))
	for _, c := range []struct {
		size  int
		flags []string
	}{{2, nil}, {3, []string{"--shares", "5,2,1"}}} {
		b := bare(c.size, c.flags...)
		for r := 1; r < c.size; r++ {
			require.NoError(t, b.Start(r))
		}
		require.True(t, string(one) == string(run(b)), "%d ranks %v: other logits than one rank", c.size, c.flags)
	}
}

// TestBenchLosesRank: a command that runs when a rank dies ends, and says which
// it was.
func TestBenchLosesRank(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		signal syscall.Signal
		notice time.Duration
	}{{syscall.SIGKILL, noticeClosed}, {syscall.SIGSTOP, noticeQuiet}} {
		t.Run(s.signal.String(), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
			b.Flags = []string{"--ctx", "8192"}
			require.NoError(t, b.Start(1))
			require.NoError(t, b.StartArgs(0, b.Args(0, "bench", "--prefill", "0", "--decode", "4000", "--repeat", "100")))
			b.logged(1, 0, regexp.MustCompile("the group is running"))
			at, err := b.Signal(1, s.signal)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(b.ctx, s.notice+slack+endAll)
			defer cancel()
			code, err := b.Rank(0).Wait(ctx)
			require.NoError(t, err)
			t.Logf("ended after %v: %s", time.Since(at).Round(time.Millisecond), lastLine(b.Rank(0)))
			require.Equal(t, 1, code)
			names(t, lastLine(b.Rank(0)), 1)
		})
	}
}
