package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// patience ends a test that hangs; no other outcome depends on it.
const patience = 20 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// testModel is an enginetest.Model, which a test may have wrapped.
type testModel interface {
	model.Model
	Violations() []string
}

// start runs an engine for the duration of a test. At the end it checks that no rule of
// the model was broken and that the loop has ended.
func start(t *testing.T, m testModel, opts Options) *Engine {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Random == nil {
		opts.Random = func() uint64 { return 1 }
	}
	if opts.Drafter == nil && *noisy {
		opts.Drafter = newNoise
	}
	e, err := New(m, enginetest.Vocabulary{}, opts)
	require.NoError(t, err)
	e.mu.Lock()
	e.sched.always = opts.Drafter != nil || opts.ModelDrafts
	e.mu.Unlock()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, e.Close(ctx))
		require.Empty(t, m.Violations())
	})
	return e
}

// answer is a complete answer, assembled from its events.
type answer struct {
	Event
	events int
}

func (a answer) ids() (ids []int32) {
	for _, t := range a.Tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

// collect reads a stream to its end.
func collect(ctx context.Context, s *Stream) (a answer, err error) {
	var all bufferedEvent
	for {
		ev, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			a.Event = all.joined()
			return a, nil
		}
		if err != nil {
			return a, err
		}
		a.events++
		if !ev.progressOnly() {
			all.merge(ev)
		}
	}
}

// finish reads an answer to its end.
func finish(t *testing.T, s *Stream) answer {
	t.Helper()
	a, err := collect(testContext(t), s)
	require.NoError(t, err)
	return a
}

// ask submits a request and reads the answer.
func ask(t *testing.T, e *Engine, r Request) answer {
	t.Helper()
	return finish(t, submit(t, e, r))
}

func encode(text string) []int32 { return enginetest.Vocabulary{}.Encode(text) }

func tokenText(tokens []Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.Write(t.Bytes)
	}
	return b.String()
}
