package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
)

// The end of the terminal stops this rank in order, as SIGTERM does; a second one
// does not end the program at once.
func TestStopOnSignal(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("NOT CHECKED: SIGHUP is ignored here")
	}
	for _, c := range []struct {
		signal syscall.Signal
		cause  error
	}{{syscall.SIGINT, cluster.ErrStopAll}, {syscall.SIGTERM, errTerminated}, {syscall.SIGHUP, errTerminated}} {
		ctx := stopOnSignal(t.Context())
		require.NoError(t, syscall.Kill(syscall.Getpid(), c.signal))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), c.cause)
	}
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGHUP)
	defer signal.Stop(seen)
	for range 3 {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
		<-seen
	}
}
