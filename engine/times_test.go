package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// TestTimes: a stream records when its request was submitted, when its first step began,
// when its prompt had run and when the answer ended, and how many steps that took. Each
// step takes a second of a clock that nothing else moves.
func TestTimes(t *testing.T) {
	var now atomic.Int64
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	m := enginetest.NewModel(enginetest.Vocabulary{}.Size(), enginetest.Options{
		OnForward: func(context.Context, model.Step) error { now.Add(1); return nil },
		Say:       func([]int32) string { return "abc" },
	})
	e := start(t, m, Options{Clock: clock, PrefillChunk: 4})
	s := submit(t, e, Request{Prompt: encode(strings.Repeat("x", 10))})
	finish(t, s)
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	// Three chunks of the prompt, the last of which gives a; then b, c and the end.
	require.Equal(t, Times{Submitted: at(0), Started: at(0), Decoding: at(3), Ended: at(6), PrefillSteps: 3, DecodeSteps: 3}, s.Times())

	// A request of another tenant that has waited, and one with a client that
	// disconnected.
	now.Store(100)
	short := submit(t, e, Request{Prompt: encode("y"), MaxTokens: 1})
	finish(t, short)
	require.Equal(t, Times{Submitted: at(100), Started: at(100), Decoding: at(101), Ended: at(101), PrefillSteps: 1}, short.Times())
}

// TestTimesOfTheUnfinished: what has not happened is the zero time.
func TestTimesOfTheUnfinished(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	m := enginetest.NewModel(enginetest.Vocabulary{}.Size(), enginetest.Options{
		OnForward: func(ctx context.Context, _ model.Step) error {
			select {
			case entered <- struct{}{}:
			case <-ctx.Done():
			}
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	e := start(t, m, Options{MaxActive: 1})
	running := submit(t, e, Request{Prompt: encode("x")})
	waiting := submit(t, e, Request{Prompt: encode("y")})
	<-entered
	for _, s := range []*Stream{waiting, running} {
		require.Zero(t, s.Times().Ended)
		s.Close()
		_, err := s.Next(testContext(t))
		require.True(t, errors.Is(err, context.Canceled))
		got := s.Times()
		require.NotZero(t, got.Submitted)
		require.NotZero(t, got.Ended)
		got.Submitted, got.Ended = time.Time{}, time.Time{}
		require.Equal(t, Times{}, got, "no step was committed")
	}
}
