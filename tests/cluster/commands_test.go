//go:build unix

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestLogits checks that the command logits writes the same bytes on one rank and
// as rank 0 of groups in which the other ranks run serve.
func TestLogits(t *testing.T) {
	t.Parallel()
	m := model(t, slowModel)
	v, err := harness.ReadVocabulary(m)
	require.NoError(t, err)
	tokens := testenv.WriteFile(t, filepath.Join(t.TempDir(), "tokens"), strings.Trim(fmt.Sprint(v.Prompt(seed, 150)), "[]"))

	// run runs logits as rank 0 and returns its output.
	run := func(b *bed) []byte {
		out := filepath.Join(t.TempDir(), "logits")
		require.NoError(t, b.StartArgs(0, b.Args(0, "logits", "--tokens", tokens, "--out", out)))
		require.Zero(t, exitCode(t, b.Rank(0)), "%s", b.Rank(0).Log)
		bytes := testenv.ReadFile(t, out)
		require.NotEmpty(t, bytes)
		return bytes
	}
	// The steps are as long as --max-batch allows by default.
	bare := func(size int, flags ...string) *bed {
		b := newBed(t, harness.Options{Size: size, Model: m})
		b.Flags = append([]string{"--ctx", "8192", "--reduce", "exact", "--peer-timeout", "20s"}, flags...)
		return b
	}
	one := run(bare(1))
	type group struct {
		size  int
		flags []string
	}
	groups := []group{{3, []string{"--share", "experts:5,2,1"}}}
	if testenv.Rest(t, testenv.Full, "the logits of two equal ranks") {
		groups = append(groups, group{2, nil})
	}
	for _, c := range groups {
		b := bare(c.size, c.flags...)
		for r := 1; r < c.size; r++ {
			require.NoError(t, b.Start(r))
		}
		require.True(t, string(one) == string(run(b)), "%d ranks %v: logits differ from one rank", c.size, c.flags)
	}
}

// TestBenchLosesRank checks that a command fails when a rank is lost, and names
// the rank.
func TestBenchLosesRank(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		signal syscall.Signal
		detect time.Duration
	}{{syscall.SIGKILL, detectClosed}, {syscall.SIGSTOP, detectSilent}} {
		t.Run(s.signal.String(), func(t *testing.T) {
			if s.signal == syscall.SIGSTOP {
				testenv.Need(t, testenv.Full, "a rank of a benchmark that is stopped")
			}
			t.Parallel()
			b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
			b.Flags = []string{"--ctx", "8192"}
			require.NoError(t, b.Start(1))
			require.NoError(t, b.StartArgs(0, b.Args(0, "bench", "--prefill", "0", "--decode", "4000", "--repeat", "100")))
			b.waitLog(1, 0, "the group is running")
			at := b.signal(1, s.signal)
			require.Equal(t, 1, exitCode(t, b.Rank(0)))
			t.Log(lastLine(b.Rank(0)))
			requireDetected(t, lastLine(b.Rank(0)), s.detect, time.Since(at))
			requireRank(t, lastLine(b.Rank(0)), 1)
		})
	}
}
