package web

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cpuTime returns the processor time of the process so far.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// render is Render with bounds of the clock that no busy machine reaches. Instead it holds
// the rendering to maxTime of the processors, so one that is too costly fails.
func render(t *testing.T, source string, partial bool) (Rendered, error) {
	t.Helper()
	began := cpuTime(t)
	r, err := renderIn(t.Context(), source, partial, time.Minute, time.Minute)
	require.Less(t, cpuTime(t)-began, maxTime)
	return r, err
}

// TestBoundsOfTheClock: the work of a text ends after the times that it is given.
func TestBoundsOfTheClock(t *testing.T) {
	began := time.Now()
	w, cancel := newWork(t.Context(), maxTime, maxHighlighting)
	defer cancel()
	end, bounded := w.ctx.Deadline()
	require.True(t, bounded)
	require.WithinRange(t, end, began.Add(maxTime), time.Now().Add(maxTime))
	require.WithinRange(t, w.colours, began.Add(maxHighlighting), time.Now().Add(maxHighlighting))
}
