//go:build unix

package harness

import (
	"context"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

func TestProcess(t *testing.T) {
	t.Setenv("RINGMASTER_MODEL", "not for the child")
	p, err := StartProcess([]string{"WORD=hello"}, "/bin/sh", "-c", `echo "$WORD $RINGMASTER_MODEL"; true & echo two >&2; wait; exec sleep 60`) // longer than ctx: it ends by the signal only
	require.NoError(t, err)
	defer p.End()
	ctx := testenv.Within(t, 20*time.Second)
	line, err := p.Log.Wait(ctx, 0, regexp.MustCompile("^hello"))
	require.NoError(t, err)
	require.Equal(t, "hello ", line)
	_, err = p.Log.Wait(ctx, 1, regexp.MustCompile("^two$"))
	require.NoError(t, err)
	require.True(t, p.Running())
	require.False(t, p.GroupGone())
	require.NoError(t, p.Signal(syscall.SIGTERM))
	code, err := p.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, 128+15, code)
	p.End()
	require.NoError(t, Until(ctx, "the group to be gone", func() (bool, string) { return p.GroupGone(), "still there" }))
	short, cancel := context.WithCancel(ctx)
	cancel()
	_, err = p.Log.Wait(short, 0, regexp.MustCompile("never"))
	require.ErrorContains(t, err, "never")
}

// TestHanging checks that a process that does not exit says where it is.
func TestHanging(t *testing.T) {
	p, err := StartProcess(nil, "/bin/sh", "-c", `trap 'echo here; exit 3' QUIT; echo ready; while :; do sleep 0.01; done`)
	require.NoError(t, err)
	defer p.End()
	_, err = p.Log.Wait(testenv.Within(t, 20*time.Second), 0, regexp.MustCompile("ready"))
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Wait(ended)
	require.ErrorIs(t, err, context.Canceled)
	if runtime.GOOS == "linux" {
		require.Regexp(t, `thread \d+ sh: [A-Z] `, err.Error())
	}
	code, err := p.Wait(testenv.Within(t, 20*time.Second))
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.Regexp(t, "here", p.Log.String())
}
