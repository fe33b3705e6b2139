//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// program is the built program and the tokens that its ranks compute.
type program struct {
	t            *testing.T
	ctx          context.Context
	path, dir    string
	ids          string
	perRank      func(rank int) []string // environment
	environments []string                // of all ranks
}

// buildProgram builds the program with the device, in software where there is no other,
// and returns its path. The last -tags counts; the other flags are those with which the
// test was built, so both share the build cache.
func buildProgram(t *testing.T, ctx context.Context, dir string) string {
	t.Helper()
	if runtime.GOOS != "darwin" {
		t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -tags=metalsim,nomsgpack")
		t.Setenv(testenv.ProgramVariable, "") // that one has no device
	}
	path, err := testenv.BuildProgram(ctx, dir)
	require.NoError(t, err)
	return path
}

func newProgram(t *testing.T) *program {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	dir := t.TempDir()
	path := buildProgram(t, ctx, dir)
	ids := filepath.Join(dir, "ids.txt")
	require.NoError(t, os.WriteFile(ids, []byte(strings.Repeat("11 22 33 44 55 66 77 ", 3)), 0o600))
	return &program{t: t, ctx: ctx, path: path, dir: dir, ids: ids}
}

// logits runs the program as this many ranks and returns the logits of rank 0, the
// logs of all ranks, and the first error.
func (p *program) logits(ranks int, args ...string) ([]byte, string, error) {
	at, err := testenv.FreeAddr("127.0.0.1")
	require.NoError(p.t, err)
	out := filepath.Join(p.dir, "logits")
	cmds, logs := make([]*exec.Cmd, ranks), make([]bytes.Buffer, ranks)
	for r := range cmds {
		all := []string{"serve"}
		if r == 0 {
			all = []string{"logits", "--tokens", p.ids, "--out", out}
		}
		all = append(append(all, "--threads", "1", "--max-batch", "16"), args...)
		if r == 0 {
			all = append(all, "--reduce", "exact")
		}
		if ranks > 1 {
			all = append(all, "--distributed", "--coordinator", at, "--world-size", fmt.Sprint(ranks), "--rank", fmt.Sprint(r), "--connect-timeout", "120s", "--share", "experts")
		}
		cmds[r] = exec.CommandContext(p.ctx, p.path, all...)
		cmds[r].Env = append(os.Environ(), p.environments...)
		if p.perRank != nil {
			cmds[r].Env = append(cmds[r].Env, p.perRank(r)...)
		}
		cmds[r].Stderr = &logs[r]
		require.NoError(p.t, cmds[r].Start())
	}
	for r := range cmds {
		if werr := cmds[r].Wait(); err == nil && werr != nil {
			err = fmt.Errorf("rank %d: %w", r, werr)
		}
	}
	text := ""
	for r := range logs {
		text += fmt.Sprintf("rank %d:\n%s", r, logs[r].String())
	}
	data, rerr := os.ReadFile(out)
	return data, text, errors.Join(err, rerr)
}
