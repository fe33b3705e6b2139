package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnreachable: a rank that does not reach all members does not join and interrupts no
// work; the leader reports the reason.
func TestUnreachable(t *testing.T) {
	r := newRigThat(t, Continue, 3, nil)
	r.follow(1, nil)
	two := r.follow(2, nil)
	e := r.running(0)
	r.crash(2, two)
	e = r.running(e.Number)
	require.Equal(t, []int{0, 1}, e.Members)
	var tried atomic.Int32
	r.follow(2, func(cfg *Config, _ *program) {
		cfg.Transport.(*transport).probe = func(addr string) error {
			if tried.Add(1) == 1 {
				return nil
			}
			return fmt.Errorf("no route to %s", addr)
		}
	})
	out := func() string {
		for _, event := range r.leader.Status().Events {
			if event.Kind == EventOut {
				return event.Text
			}
		}
		return ""
	}
	require.Eventually(t, func() bool { return out() != "" }, limit, time.Millisecond)
	require.Regexp(t, `^rank 2 stays out for 30s: rank 2 does not reach rank [01] at 127\.0\.0\.1:0: no route to 127\.0\.0\.1:0`, out())
	require.EqualValues(t, 2, tried.Load())
	require.NoError(t, r.do(e, "undisturbed"))
}

// TestRecruit: a returning rank waits while the program sends it what it lacks, piece by
// piece, and the others work. It joins when the program says so. If it refuses a piece or
// is lost, the program gets an error.
func TestRecruit(t *testing.T) {
	r := newRigThat(t, Continue, 3, nil)
	one, two := r.follow(1, nil), r.follow(2, nil)
	e := r.running(0)
	ctx := soon(t)
	type found struct {
		*Recruit
		err error
	}
	recruit := func() chan found {
		c := make(chan found, 1)
		go func() {
			x, err := r.leader.Recruit(ctx)
			c <- found{x, err}
		}()
		return c
	}
	next := recruit()
	r.crash(2, two)
	e = r.running(e.Number)
	require.Equal(t, []int{0, 1}, e.Members)

	two = r.follow(2, nil)
	x := <-next
	require.NoError(t, x.err)
	require.Equal(t, 2, x.Rank)
	for _, piece := range []string{"a", "b", "c"} {
		require.NoError(t, x.Send(ctx, []byte(piece)))
		require.NoError(t, r.do(e, "work beside "+piece))
	}
	require.NoError(t, x.Flush(ctx))
	two.mu.Lock()
	require.Equal(t, []string{"a", "b", "c"}, two.ahead)
	require.Empty(t, two.did)
	two.mu.Unlock()

	// Only a few are in flight at once.
	two.taking.Lock()
	for range mostAhead {
		require.NoError(t, x.Send(ctx, []byte("d")))
	}
	expired, end := context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("too slow"))
	require.ErrorContains(t, x.Send(expired, []byte("e")), "too slow")
	require.ErrorContains(t, x.Flush(expired), "too slow")
	end()
	two.taking.Unlock()
	require.NoError(t, x.Send(ctx, []byte("f")))
	require.NoError(t, x.Flush(ctx))
	two.mu.Lock()
	require.Equal(t, []string{"a", "b", "c", "d", "d", "d", "d", "f"}, two.ahead)
	two.mu.Unlock()

	// The next Send or Flush reports the refusal.
	require.NoError(t, x.Send(ctx, []byte("poison")))
	err := x.Flush(ctx)
	require.ErrorIs(t, x.Send(ctx, []byte("g")), ErrRefused)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "rank 2: the rank refused it: it is poisoned")

	// It waits again when the epoch has ended before it joined.
	next = recruit()
	r.crash(1, one)
	e = r.running(e.Number)
	require.Error(t, x.Send(ctx, []byte("late")))
	x.Join() // of no account
	if len(e.Members) == 1 {
		y := <-next
		require.NoError(t, y.err)
		require.NoError(t, y.Send(ctx, []byte("h")))
		require.NoError(t, y.Flush(ctx))
		y.Join()
		e = r.running(e.Number)
	}
	require.Equal(t, []int{0, 2}, e.Members)
	require.NoError(t, r.do(e, "together"))
	r.crash(2, two)
	require.NoError(t, r.ended(two))
}
