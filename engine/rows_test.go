package engine

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// poisoned is a model that sets the given places of every row of logits after the token
// bad, anywhere in the sequence, to value, as if the KV cache held it.
type poisoned struct {
	*enginetest.Model
	bad    int32
	value  float32
	places []int
	seen   map[model.SeqID]bool
}

func (m *poisoned) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	rows, err := m.Model.Forward(ctx, s)
	at := 0
	for _, e := range s.Entries {
		m.seen[e.Seq] = m.seen[e.Seq] && e.Pos > 0 || slices.Contains(e.Tokens, m.bad)
		n := map[model.Want]int{model.WantLast: 1, model.WantAll: len(e.Tokens)}[e.Want]
		for i := range n {
			first := slices.Index(e.Tokens, m.bad)
			for _, place := range m.places {
				if err == nil && m.seen[e.Seq] && (e.Want == model.WantLast || i >= first) {
					rows[at+i][place] = m.value
				}
			}
		}
		at += n
	}
	return rows, err
}

// newPoisoned returns a model with steps that wait on the gate, except those that only
// drop.
func newPoisoned(value float32, places ...int) (*poisoned, chan error) {
	gate := make(chan error)
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{OnForward: func(ctx context.Context, s model.Step) error {
		if len(s.Entries) == 0 {
			return nil
		}
		select {
		case err := <-gate:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	return &poisoned{Model: m, bad: '!', value: value, places: places, seen: map[model.SeqID]bool{}}, gate
}

// TestNonFiniteLogitsEndOnlyTheirRequest: the error names request, sequence, position and
// values, the request beside it gets the answer that it gets alone, and the engine keeps
// serving.
func TestNonFiniteLogitsEndOnlyTheirRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		value  float32
		places []int
		r      Request
		want   string
	}{
		"NaN": {float32(math.NaN()), []int{7}, Request{Prompt: encode("bad!")},
			"request 2, sequence 2, position 3: 1 of 260 logits, the first is logit 7, NaN"},
		"infinities": {float32(math.Inf(-1)), []int{0, 9}, Request{Prompt: encode("bad!")},
			"request 2, sequence 2, position 3: 2 of 260 logits, the first is logit 0, -Inf"},
		"inside a prompt with log-probabilities": {float32(math.Inf(1)), []int{1}, Request{Prompt: encode("b!ad"), PromptLogprobs: true},
			"request 2, sequence 2, position 1: 1 of 260 logits, the first is logit 1, +Inf"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, gate := newPoisoned(tt.value, tt.places...)
				var log strings.Builder
				e := start(t, m, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				seed := uint64(1)
				good := Request{Prompt: encode("good"), MaxTokens: 5, IgnoreEOS: true, Sampling: Sampling{Seed: &seed}}
				beside := submit(t, e, good)
				gate <- nil
				synctest.Wait()
				bad := submit(t, e, tt.r)
				close(gate)
				require.ErrorContains(t, wantError(t, bad, ErrNonFinite), tt.want)
				a := finish(t, beside)
				checkAnswer(t, good, a, 4096)
				require.Contains(t, log.String(), tt.want)

				require.NoError(t, e.Ready())
				checkAnswer(t, good, ask(t, e, good), 4096)
				synctest.Wait()
				stats := e.Stats()
				require.EqualValues(t, 1, stats.NonFinite)
				require.Len(t, m.Live(), stats.CacheEntries, "the sequence is dropped")
			})
		})
	}
}

// TestASpoiledSequenceIsNotReused: neither after its request has failed nor after the
// request was cancelled during the step that spoiled it. An entry that an earlier request
// left in the prefix cache is used again, but only once if it is spoiled.
func TestASpoiledSequenceIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := newPoisoned(float32(math.NaN()), 3)
		e := start(t, m, Options{PrefillChunk: 4})

		// Cancelled beside another request, so that the step runs to its end.
		streams, err := e.SubmitAll(t.Context(), []Request{{Prompt: encode("!")}, {Prompt: encode("x"), MaxTokens: 1}})
		require.NoError(t, err)
		synctest.Wait()
		streams[0].Close()
		gate <- nil
		finish(t, streams[1])
		synctest.Wait()
		require.Equal(t, 1, e.Stats().CacheEntries, "of the other request only")
		require.Len(t, m.Live(), 1)

		// The chunk "abc!" is spoiled, and cancelled before its logits are seen.
		half := submit(t, e, Request{Prompt: encode("abc!defgh")})
		gate <- nil
		synctest.Wait()
		half.Close()
		synctest.Wait()
		require.Equal(t, 2, e.Stats().CacheEntries)
		close(gate)
		s := submit(t, e, Request{Prompt: encode("abc!xyz")})
		var bad *NonFiniteError
		require.ErrorAs(t, wantError(t, s, ErrNonFinite), &bad)
		require.Equal(t, 4, bad.Cached)
		m.bad = -1 // as if the cache alone had been spoiled
		s = submit(t, e, Request{Prompt: encode("abc!xyz"), MaxTokens: 1})
		require.Zero(t, finish(t, s).Usage.Cached)
	})
}
