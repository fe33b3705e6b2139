//go:build unix

package harness

import (
	"context"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestProcess(t *testing.T) {
	t.Setenv("RINGMASTER_MODEL", "not for the child")
	p, err := StartProcess([]string{"WORD=hello"}, "/bin/sh", "-c", `echo "$WORD $RINGMASTER_MODEL"; true & echo two >&2; wait; exec sleep 60`) // longer than ctx: it ends by the signal only
	require.NoError(t, err)
	defer p.End()
	ctx := within(t, 20*time.Second)
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
