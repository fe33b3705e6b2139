package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// stepping records whether a step runs.
type stepping struct {
	*enginetest.Model
	in    atomic.Bool
	steps int
}

func (m *stepping) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	m.in.Store(true)
	defer m.in.Store(false)
	m.steps++
	return m.Model.Forward(ctx, s)
}

// TestBetween: a function that runs between steps is alone with the model, one call in
// each gap; requests continue; a call that is given up does not run; after Close no call
// runs.
func TestBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &stepping{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: 100, MaxTokens: 8})}
		e := start(t, m, Options{})
		var steps []int
		call := func() error {
			return e.Between(t.Context(), func() {
				require.False(t, m.in.Load())
				steps = append(steps, m.steps)
			})
		}
		require.NoError(t, call(), "idle")
		hold := make(chan struct{})
		go func() { _ = e.Between(t.Context(), func() { <-hold }) }()
		synctest.Wait() // three calls and a request wait now
		for range 3 {
			go func() { require.NoError(t, call()) }()
		}
		s := submit(t, e, Request{Prompt: []int32{1, 2, 3}, MaxTokens: 20, IgnoreEOS: true})
		synctest.Wait()
		close(hold)
		finish(t, s)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, steps)

		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("given up")
		block := make(chan struct{})
		go func() { _ = e.Between(t.Context(), func() { <-block }) }()
		synctest.Wait()
		gaveUp := make(chan error)
		go func() { gaveUp <- e.Between(ctx, func() { panic("it must not run") }) }()
		synctest.Wait()
		cancel(why)
		require.ErrorIs(t, <-gaveUp, why)
		close(block)
		require.NoError(t, e.Close(t.Context()))
		require.ErrorIs(t, e.Between(t.Context(), func() { panic("it must not run") }), ErrClosed)
	})
}
