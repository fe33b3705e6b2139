package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// These tests run in bubbles of testing/synctest. Wait returns when every goroutine is
// blocked, so that the state at that point is deterministic, and a goroutine that
// outlives its test fails it.

// gated is a model in which each step waits for a value on the gate or for the
// end of its context.
func gated(o enginetest.Options) (*enginetest.Model, chan error) {
	gate := make(chan error)
	o.OnForward = func(ctx context.Context, _ model.Step) error {
		select {
		case err := <-gate:
			return err
		case <-ctx.Done():
			return fmt.Errorf("between layers: %w", ctx.Err())
		}
	}
	return enginetest.NewModel(enginetest.Size, o), gate
}

func submit(t *testing.T, e *Engine, r Request) *Stream {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	require.NoError(t, err)
	return s
}

// wantError reads a stream to its end and requires that it ends with err.
func wantError(t *testing.T, s *Stream, want error) error {
	t.Helper()
	_, err := collect(t.Context(), s)
	require.ErrorIs(t, err, want)
	return err
}

func TestCancelInPrefillEndsTheStep(t *testing.T) {
	for name, cancel := range map[string]func(s *Stream, end func()){
		"stream closed":  func(s *Stream, _ func()) { s.Close() },
		"context ended":  func(_ *Stream, end func()) { end() },
		"closed, ended":  func(s *Stream, end func()) { s.Close(); end() },
		"closed 2 times": func(s *Stream, _ func()) { s.Close(); s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, gate := gated(enginetest.Options{})
				e := start(t, m, Options{PrefillChunk: 4})
				ctx, end := context.WithCancel(t.Context())
				defer end()
				s, err := e.Submit(ctx, Request{Prompt: make([]int32, 1000)})
				require.NoError(t, err)
				gate <- nil
				synctest.Wait() // the second chunk runs
				cancel(s, end)
				synctest.Wait()
				wantError(t, s, context.Canceled)
				if got := e.Stats(); got.Steps != 1 || got.Active != 0 || got.CacheEntries != 1 {
					t.Fatalf("after the cancel %+v", got)
				}
				// What has already run does not run again.
				s = submit(t, e, Request{Prompt: make([]int32, 8), MaxTokens: 1})
				gate <- nil
				require.Equal(t, 4, finish(t, s).Usage.Cached)
			})
		})
	}
}

// TestCancelOfARewind: a sequence whose rewind was interrupted is not used again, because
// the step may have overwritten the tokens that it would have cut off.
func TestCancelOfARewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{PrefillChunk: 4})
		prompt := []int32{1, 2, 3, 4}
		s := submit(t, e, Request{Prompt: prompt, MaxTokens: 1})
		gate <- nil
		finish(t, s)
		s = submit(t, e, Request{Prompt: []int32{1, 2, 3, 9, 9, 9}, MaxTokens: 1})
		synctest.Wait() // it rewinds the sequence to 3
		s.Close()
		synctest.Wait()
		wantError(t, s, context.Canceled)
		close(gate)
		s = submit(t, e, Request{Prompt: append(prompt, 5), MaxTokens: 1})
		require.Zero(t, finish(t, s).Usage.Cached)
	})
}

func TestCancelBesideOthersLetsTheStepEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{PrefillChunk: 4})
		gone := submit(t, e, Request{Prompt: make([]int32, 100)})
		synctest.Wait() // a step with gone only
		stays := submit(t, e, Request{Prompt: encode("xy"), MaxTokens: 1})
		gate <- nil
		synctest.Wait() // a step with both
		gone.Close()
		synctest.Wait()
		if got := e.Stats(); got.Steps != 1 || got.Active != 2 {
			t.Fatalf("the step of both was ended: %+v", got)
		}
		gate <- nil
		finish(t, stays)
		synctest.Wait()
		if got := e.Stats(); got.Steps != 2 || got.Active != 0 {
			t.Fatalf("the cancelled prompt continued: %+v", got)
		}
	})
}

func TestAFailedStepFailsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{MaxActive: 1})
		cause := errors.New("rank 2 is gone")
		streams := []*Stream{
			submit(t, e, Request{Prompt: encode("active")}),
			submit(t, e, Request{Prompt: encode("queued")}),
		}
		gate <- nil
		gate <- cause
		for _, s := range streams {
			wantError(t, s, ErrFailed)
			err := wantError(t, s, cause)
			require.ErrorContains(t, err, "step 2 (sequence 1, 1 tokens at 6)")
		}
		if _, err := e.Submit(t.Context(), Request{Prompt: encode("x")}); !errors.Is(err, ErrFailed) || !errors.Is(err, cause) {
			t.Fatalf("submit says %v", err)
		}
		require.ErrorIs(t, e.Ready(), ErrFailed)
	})
}

// TestAPanicOfTheModelFailsTheEngine: the process continues, and no word of the panic's
// value gets into an error or the log.
func TestAPanicOfTheModelFailsTheEngine(t *testing.T) {
	for want, v := range map[string]any{
		"the model panicked: a value of type string":                "secret",
		"the model panicked: a value of type *errors.errorString":   errors.New("secret"),
		"the model panicked: runtime error: integer divide by zero": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			m := enginetest.NewModel(enginetest.Size, enginetest.Options{OnForward: func(_ context.Context, s model.Step) error {
				if v == nil {
					_ = 1 / len(s.Drop)
				}
				panic(v)
			}})
			e := start(t, m, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s := submit(t, e, Request{Prompt: encode("abc")})
			if err := wantError(t, s, ErrFailed); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, want)
			}
			require.ErrorIs(t, e.Ready(), ErrFailed)
			require.NoError(t, e.Close(t.Context()))
			require.NotContains(t, log.String(), "secret")
			require.Contains(t, log.String(), "stack=")
		})
	}
}

// badModel falsifies what a model reports.
type badModel struct {
	*enginetest.Model
	rows  func(rows [][]float32) [][]float32
	short int // Len reports this many fewer tokens
}

func (m *badModel) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	rows, err := m.Model.Forward(ctx, s)
	if err == nil && m.rows != nil {
		rows = m.rows(rows)
	}
	return rows, err
}

func (m *badModel) Len(id model.SeqID) int { return m.Model.Len(id) - m.short }

// TestAModelThatAnswersWronglyFailsTheEngine: rows in another shape or number than the
// step wants mean that nothing of the model's answer can be trusted.
// TestNonFiniteLogitsEndOnlyTheirRequest covers values that are not finite.
func TestAModelThatAnswersWronglyFailsTheEngine(t *testing.T) {
	for want, bad := range map[string]badModel{
		"0 rows of logits, expected 1":                  {rows: func(r [][]float32) [][]float32 { return nil }},
		"2 rows of logits, expected 1":                  {rows: func(r [][]float32) [][]float32 { return append(r, r[0]) }},
		"a row of 3 logits, the vocabulary has 260":     {rows: func(r [][]float32) [][]float32 { return [][]float32{r[0][:3]} }},
		"sequence 1 has length 2 after the step, not 3": {short: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			bad.Model = enginetest.NewModel(enginetest.Size, enginetest.Options{})
			e := start(t, &bad, Options{})
			s := submit(t, e, Request{Prompt: encode("abc")})
			require.ErrorContains(t, wantError(t, s, ErrFailed), want)
		})
	}
}

func TestMemoryIsTakenFromThePrefixCacheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{MemoryLimit: 20})
		e := start(t, m, Options{})
		for _, prompt := range []string{"first one", "second one"} { // 9 and 10 tokens
			ask(t, e, Request{Prompt: encode(prompt), MaxTokens: 1})
		}
		a := ask(t, e, Request{Prompt: encode("a third"), MaxTokens: 2, IgnoreEOS: true})
		require.Equal(t, 2, a.Usage.Completion)
		if live := m.Live(); len(live) != 2 || live[1] != nil {
			t.Fatalf("left are %v, the oldest should be gone", live)
		}
	})
}

func TestMemoryFailsOnlyWhoNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{MemoryLimit: 30})
		e := start(t, m, Options{PrefillChunk: 16})
		small := submit(t, e, Request{Prompt: encode("small"), MaxTokens: 10, IgnoreEOS: true})
		gate <- nil
		synctest.Wait()
		large := submit(t, e, Request{Prompt: make([]int32, 100)})
		synctest.Wait()
		close(gate)
		require.Equal(t, 10, finish(t, small).Usage.Completion)
		wantError(t, large, ErrNoMemory)
		wantError(t, large, model.ErrNoMemory)
		require.NoError(t, e.Ready())
	})
}

// TestStorageThatFails: a step that cannot read the model's file ends its requests; one that
// waits and later ones are answered.
func TestStorageThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{PrefillChunk: 16, MaxActive: 1})
		broken := submit(t, e, Request{Prompt: encode("broken"), MaxTokens: 10, IgnoreEOS: true})
		waiting := submit(t, e, Request{Prompt: encode("waiting"), MaxTokens: 10, IgnoreEOS: true})
		gate <- nil
		gate <- fmt.Errorf("row 7: %w", model.ErrStorage)
		synctest.Wait()
		close(gate)
		wantError(t, broken, ErrStorage)
		require.Equal(t, 10, finish(t, waiting).Usage.Completion)
		require.NoError(t, e.Ready())
	})
}

func TestNoMemoryToForgetIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{CacheEntries: -1})
		s := submit(t, e, Request{Prompt: encode("x"), MaxTokens: 1})
		gate <- nil
		finish(t, s)
		gate <- model.ErrNoMemory // outcome of the step that drops the sequence
		synctest.Wait()
		require.ErrorIs(t, e.Ready(), ErrFailed)
	})
}

func TestCloseEndsTheStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := gated(enginetest.Options{})
		e := start(t, m, Options{MaxActive: 1})
		active := submit(t, e, Request{Prompt: encode("active")})
		queued := submit(t, e, Request{Prompt: encode("queued")})
		synctest.Wait()
		require.NoError(t, e.Close(t.Context()))
		wantError(t, active, ErrClosed)
		wantError(t, queued, ErrClosed)
		_, err := e.Submit(t.Context(), Request{Prompt: encode("x")})
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, e.Ready(), ErrClosed)
	})
}

func TestCloseDoesNotWaitForeverForAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := make(chan struct{})
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{
			OnForward: func(context.Context, model.Step) error { <-deaf; return nil },
		})
		e := start(t, m, Options{})
		s := submit(t, e, Request{Prompt: encode("x")})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, e.Close(ctx), context.Canceled)
		wantError(t, s, ErrClosed)
		close(deaf)
	})
}

func TestNextWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e := start(t, m, Options{})
		s := submit(t, e, Request{Prompt: encode("x"), MaxTokens: 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Next(ctx)
		require.ErrorIs(t, err, context.Canceled)
		close(gate)
		require.Equal(t, 1, finish(t, s).Usage.Completion)
	})
}
