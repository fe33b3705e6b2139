package rdma

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// programLimit bounds a whole job of ranks.
const programLimit = 2 * time.Minute

// job runs the program as the ranks of a group over the fabric without
// hardware.
type job struct {
	t      *testing.T
	binary string
	dir    string
	ids    string
	script string
	matrix string
}

func newJob(t *testing.T, script, matrix string) *job {
	j := &job{t: t, dir: t.TempDir(), script: script}
	var err error
	j.binary, err = testenv.BuildProgram(t.Context(), j.dir)
	require.NoError(t, err)
	j.ids = filepath.Join(j.dir, "ids.txt")
	require.NoError(t, os.WriteFile(j.ids, []byte(strings.Repeat("11 22 33 44 55 66 77 ", 12)), 0o644))
	j.matrix = filepath.Join(j.dir, "matrix.json")
	require.NoError(t, os.WriteFile(j.matrix, []byte(matrix), 0o644))
	return j
}

// logits runs the program on this many ranks and returns the logits of rank 0
// and the log of the ranks.
func (j *job) logits(ranks int, args ...string) ([]byte, string, error) {
	ctx := testenv.Within(j.t, programLimit)
	at := testenv.LoopbackAddr(j.t)
	fabric := j.t.TempDir()
	out := filepath.Join(j.dir, fmt.Sprint("logits.", ranks))
	var log bytes.Buffer
	logs := make([]bytes.Buffer, ranks)
	cmds := make([]*exec.Cmd, ranks)
	for r := range cmds {
		all := []string{"serve"}
		if r == 0 {
			all = []string{"logits", "--tokens", j.ids, "--out", out, "--reduce", "exact"}
		}
		all = append(all, "--threads", "1")
		if ranks > 1 {
			all = append(all, "--distributed", "--coordinator", at, "--world-size", fmt.Sprint(ranks), "--rank", fmt.Sprint(r), "--connect-timeout", "60s", "--share", "experts")
			all = append(all, args...)
		}
		cmds[r] = exec.CommandContext(ctx, j.binary, all...)
		cmds[r].Env = append(os.Environ(), fakeverbs.Env(j.t, fabric, j.script, r)...)
		cmds[r].Env = append(cmds[r].Env, "MLX_IBV_DEVICES="+j.matrix)
		cmds[r].Stderr = &logs[r]
		require.NoError(j.t, cmds[r].Start())
	}
	var err error
	for r := range cmds {
		if werr := cmds[r].Wait(); err == nil && werr != nil {
			err = fmt.Errorf("rank %d: %w", r, werr)
		}
	}
	for r := range logs {
		fmt.Fprintf(&log, "rank %d:\n%s", r, logs[r].String())
	}
	if err != nil {
		return nil, log.String(), err
	}
	data, err := os.ReadFile(out)
	return data, log.String(), err
}

// TestProgramOverRDMA: two ranks with two cables, listed crossed, and three in a
// mesh give the same bits as one; auto chooses RDMA where it works and, where a
// device is missing, TCP on all ranks.
func TestProgramOverRDMA(t *testing.T) {
	two := newJob(t, `
device en6 host=0 link=tb
device en7 host=0 link=tb
device en6 host=1 link=tb
device en7 host=1 link=tb
cable 0:en6 1:en7
cable 0:en7 1:en6
`, `[[null,["en6","en7"]],[["en6","en7"],null]]`)
	want, log, err := two.logits(1)
	require.NoError(t, err, log)
	rest := testenv.Rest(t, testenv.Full, "rails that auto finds, and a device that rdma does not find")
	transports := []string{"rdma"}
	if rest {
		transports = append(transports, "auto")
	}
	for _, transport := range transports {
		got, log, err := two.logits(2, "--transport", transport)
		require.NoError(t, err, log)
		require.Equal(t, want, got, transport)
		require.Contains(t, log, "transport=rdma", transport)
		require.Contains(t, log, "crossed")
	}
	got, log, err := two.logits(2, "--transport", "rdma", "--stages", "2") // rows between stages travel over both cables
	require.NoError(t, err, log)
	require.Equal(t, want, got)
	require.Contains(t, log, "transport=rdma")
	three := newJob(t, `
device a host=0 link=eth
device b host=0 link=eth
device a host=1 link=eth
device b host=1 link=eth
device a host=2 link=eth
device b host=2 link=eth
cable 0:a 1:a
cable 0:b 2:a
cable 1:b 2:b
`, `[[null,"a","b"],["a",null,"b"],["a","b",null]]`)
	for _, how := range [][]string{{"--share", "all:3,1,2"}, {"--stages", "2", "--share", "all"}, {"--stages", "3"}} {
		got, log, err = three.logits(3, append([]string{"--transport", "rdma"}, how...)...)
		require.NoError(t, err, log)
		require.Equal(t, want, got, how)
		require.Contains(t, log, "transport=rdma")
	}

	// A device that does not exist.
	missing := newJob(t, two.script, `[[null,"en6"],["en9",null]]`)
	got, log, err = missing.logits(2, "--transport", "auto")
	require.NoError(t, err, log)
	require.Equal(t, want, got)
	require.Contains(t, log, "all ranks use tcp")
	require.Contains(t, log, "transport=tcp")
	if rest {
		_, log, err = missing.logits(2, "--transport", "rdma")
		require.Error(t, err)
		require.Contains(t, log, "en9")
	}
}
