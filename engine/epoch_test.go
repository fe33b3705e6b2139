package engine

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

var errRank1 = errors.New("rank 1 at 10.0.0.2:41234: connection closed")

// wantLost checks that a stream ends because rank 1 was lost.
func wantLost(t *testing.T, s *Stream) {
	t.Helper()
	err := wantError(t, s, ErrUnavailable)
	require.ErrorIs(t, err, model.ErrUnavailable)
	require.ErrorContains(t, err, errRank1.Error())
}

// wantUnavailable checks that an engine accepts no requests and says why; wantReady
// checks the opposite.
func wantUnavailable(t *testing.T, e *Engine) {
	t.Helper()
	_, err := e.Submit(t.Context(), Request{Prompt: encode("x")})
	for _, err := range []error{err, e.Ready()} {
		if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), ": "+errRank1.Error()) {
			t.Fatalf("while rank 1 is away: %v", err)
		}
	}
}

func wantReady(t *testing.T, e *Engine) {
	t.Helper()
	require.NoError(t, e.Ready())
}

// TestALostRankEndsRequestsAndTheEngineContinues: whatever the model is doing when it loses
// its sequences, all requests end with the cause, and once it is back the same prompts
// are answered from the start.
func TestALostRankEndsRequestsAndTheEngineContinues(t *testing.T) {
	for name, steps := range map[string]int{"in the first chunk": 0, "in prefill": 1, "in decode": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, gate := gated(enginetest.Options{})
				e := start(t, m, Options{MaxActive: 2, PrefillChunk: 4})
				prompt := encode("a prompt")
				streams := []*Stream{
					submit(t, e, Request{Prompt: prompt}),
					submit(t, e, Request{Prompt: encode("another one")}),
					submit(t, e, Request{Prompt: encode("queued")}),
				}
				for range steps {
					gate <- nil
				}
				synctest.Wait() // the next step runs
				m.Lose(errRank1)
				for _, s := range streams {
					wantLost(t, s)
				}
				synctest.Wait()
				wantUnavailable(t, e)
				if got := e.Stats(); got.Active+got.Queued+got.CacheEntries != 0 || got.Steps != uint64(steps) {
					t.Fatalf("after the loss %+v", got)
				}

				m.Return()
				wantReady(t, e)
				close(gate)
				r := Request{Prompt: prompt, MaxTokens: 3, IgnoreEOS: true}
				a, err := collect(t.Context(), submit(t, e, r))
				if err != nil || a.Usage.Cached != 0 || a.Usage.Completion != 3 {
					t.Fatalf("after the return: %+v, %v", a.Usage, err)
				}
				synctest.Wait()
				require.Equal(t, 1, m.Known(), "the engine keeps one sequence")
				require.Len(t, m.Live(), 1, "the engine keeps one sequence")
			})
		})
	}
}

// TestEntriesOfALostEpochAreNotReused: no requests ran while the model was down, so the
// engine can only tell from the epoch number.
func TestEntriesOfALostEpochAreNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 9})
		e := start(t, m, Options{})
		r := Request{Prompt: encode("hello world"), MaxTokens: 4, IgnoreEOS: true}
		first := ask(t, e, r)
		synctest.Wait()
		m.Lose(errRank1)
		synctest.Wait()
		wantUnavailable(t, e)
		m.Return()
		for i, cached := range []int{0, len(r.Prompt) - 1} { // the first request fills the prefix cache again, the second hits it
			a := ask(t, e, r)
			require.Equal(t, cached, a.Usage.Cached, "time %d after the return", i)
			require.Equal(t, first.Text, a.Text, "time %d after the return", i)
		}
		require.Equal(t, 1, e.Stats().CacheEntries)
	})
}

// TestALossBetweenForwardAndCommit: all sequences are lost after the step has run. If the model
// is back at once, the answer continues.
func TestALossBetweenForwardAndCommit(t *testing.T) {
	for name, back := range map[string]bool{"and stays away": false, "and is back at once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &lateLoss{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{}), at: 2, back: back}
				e := start(t, m, Options{})
				r := Request{Prompt: encode("abc"), MaxTokens: 9, IgnoreEOS: true}
				s := submit(t, e, r)
				if back {
					a := finish(t, s)
					require.Equal(t, ask(t, start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{}), r).Text, a.Text, "the answer of a model that was never lost")
					return
				}
				wantError(t, s, ErrUnavailable)
				synctest.Wait()
				wantUnavailable(t, e)
				m.Return()
				wantReady(t, e)
				a := ask(t, e, Request{Prompt: encode("abc"), MaxTokens: 2, IgnoreEOS: true})
				require.Zero(t, a.Usage.Cached, "reused what was lost")
			})
		})
	}
}

// lateLoss loses its sequences just before commit number at.
type lateLoss struct {
	*enginetest.Model
	at, every int // every: then again after so many; 0: never
	back      bool
}

func (m *lateLoss) Commit(s model.Step) {
	if m.at--; m.at == 0 {
		m.at = m.every
		m.Lose(errRank1)
		if m.back {
			m.Return()
		}
	}
	m.Model.Commit(s)
}

// TestAnEpochThatBeganUnseen: the model was lost and came back between two steps; the
// running request is computed again, a waiting one is answered.
func TestAnEpochThatBeganUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &blinking{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{})}
		e := start(t, m, Options{MaxActive: 1})
		r := Request{Prompt: encode("lost"), MaxTokens: 9, IgnoreEOS: true}
		lost := submit(t, e, r)
		waits := submit(t, e, Request{Prompt: encode("waits"), MaxTokens: 2, IgnoreEOS: true})
		require.Equal(t, ask(t, start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{}), r).Text, finish(t, lost).Text)
		require.Equal(t, 2, finish(t, waits).Usage.Completion)
		require.NoError(t, e.Close(t.Context()))
		require.LessOrEqual(t, m.Known(), 2, "sequences that are kept or will be dropped")
	})
}

// TestLossesAtEveryStep: whatever step the model loses its sequences at, and how often, chats,
// prompts in chunks and sampled answers have the texts of a model that was never
// lost; an answer whose own step is always lost ends.
func TestLossesAtEveryStep(t *testing.T) {
	requests := []Request{
		{Prompt: encode("a prompt of several chunks"), MaxTokens: 12, IgnoreEOS: true},
		{Prompt: encode("sampled"), MaxTokens: 12, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: new(uint64(7))}},
		{Prompt: encode("a prompt of several chunks, too"), MaxTokens: 5, IgnoreEOS: true},
	}
	synctest.Test(t, func(t *testing.T) {
		answers := func(m testModel) (texts []string) {
			e := start(t, m, Options{MaxActive: 2, PrefillChunk: 4})
			var streams []*Stream
			for _, r := range requests {
				streams = append(streams, submit(t, e, r))
			}
			for _, s := range streams {
				texts = append(texts, finish(t, s).Text)
			}
			return texts
		}
		want := answers(enginetest.NewModel(enginetest.Size, enginetest.Options{}))
		for at := 1; at < 30; at++ {
			m := &lateLoss{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{}), at: at, every: 23, back: true}
			require.Equal(t, want, answers(m), "losses at commit %d and every 23 after it", at)
		}
		e := start(t, &lateLoss{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{}), at: 3, every: 1, back: true}, Options{})
		s := submit(t, e, requests[0])
		wantError(t, s, ErrUnavailable)
	})
}

// blinking loses its sequences and comes back, once the first step has been
// committed and checked.
type blinking struct {
	*enginetest.Model
	done bool
}

func (m *blinking) Len(id model.SeqID) int {
	n := m.Model.Len(id)
	if !m.done {
		m.done = true
		m.Lose(errRank1)
		m.Return()
	}
	return n
}

// TestAModelWithoutEpochs: the error ends the requests, but not the engine.
func TestAModelWithoutEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{})
		e, err := New(struct{ model.Model }{m}, enginetest.Vocabulary{}, Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		s := submit(t, e, Request{Prompt: encode("abc")})
		gate <- &model.UnavailableError{Cause: errRank1}
		wantLost(t, s)
		wantReady(t, e)
		close(gate)
		ask(t, e, Request{Prompt: encode("abc"), MaxTokens: 1})
		require.NoError(t, e.Close(t.Context()))
	})
}

// TestCloseWhileUnavailable: the engine closes as usual.
func TestCloseWhileUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
		m.Lose(errRank1)
		e := start(t, m, Options{})
		wantUnavailable(t, e)
		require.NoError(t, e.Close(t.Context()))
		require.ErrorIs(t, e.Ready(), ErrClosed)
	})
}
