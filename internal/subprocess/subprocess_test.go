package subprocess

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

func TestRun(t *testing.T) {
	testenv.NeedTool(t, "sh", "no sh here")
	out, err := Run(t.Context(), "sh", "-c", "echo $LC_ALL; echo why >&2; echo more >&2; exit 3")
	require.Equal(t, "C\n", out)
	require.EqualError(t, err, "exit status 3: why")
	_, err = Run(testenv.Within(t, 50*time.Millisecond), "sh", "-c", "exec sleep 1000")
	require.Error(t, err)
	// A program that ignores SIGTERM is left behind, not killed.
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := filepath.Join(dir, "pid")
	go func() {
		for ctx.Err() == nil {
			if text, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(text), "\n") {
				cancel()
			}
		}
	}()
	_, err = Run(ctx, "sh", "-c", "trap '' TERM; echo $$ > "+pid+"; while [ ! -e "+dir+"/end ]; do read -t 1 x; done < /dev/zero; echo over > "+dir+"/over")
	require.ErrorIs(t, err, ErrLeftBehind)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "over")); return err == nil }, 30*time.Second, 10*time.Millisecond,
		"it was killed")
	_, err = Run(t.Context(), "no-such-program-of-rdma")
	require.ErrorIs(t, err, exec.ErrNotFound)
	var c cappedBuffer
	for range 3 {
		n, err := c.Write(make([]byte, maxOutput/2+1))
		require.NoError(t, err)
		require.Equal(t, maxOutput/2+1, n)
	}
	require.Len(t, c.String(), maxOutput)
}
