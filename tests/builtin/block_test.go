package builtin

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/model/chat"
	"ringmaster/model/tokenizer"
)

// startDrafting runs the model with its block for multi-token prediction, one sequence at a
// time, and nothing else that drafts.
func startDrafting(t testing.TB, clock func() time.Time) (*engine.Engine, *tokenizer.Tokenizer) {
	return startWith(t, engine.Options{ModelDrafts: true, MaxActive: 1, CacheEntries: -1, Clock: clock, Logger: slog.New(slog.DiscardHandler)})
}

// askedQuestions are requests for the answers to the held-out questions.
func askedQuestions(t testing.TB, tok *tokenizer.Tokenizer) (out []engine.Request) {
	for _, q := range readLines[toolQuestion](t, "../../model/builtin/questions.jsonl") {
		ids, _, err := chat.Formats[0].Encode(t.Context(), tok, &chat.Conversation{Messages: []chat.Message{user(q.Question)}})
		require.NoError(t, err)
		out = append(out, engine.Request{Prompt: ids, MaxTokens: 64})
	}
	return out
}

// TestBlockGuesses: of the answers to the held-out questions the block guesses at least six of
// ten tokens after the next, so that they take at most 0.65 of the steps; they are those
// without drafts. No time decides what a step runs.
func TestBlockGuesses(t *testing.T) {
	e, tok := startDrafting(t, func() time.Time { return time.Unix(0, 0) })
	requests := askedQuestions(t, tok)
	say := func(r engine.Request) string {
		var said strings.Builder
		answer(t, e, r, func(text string) { said.WriteString(text) })
		return said.String()
	}
	var with []string
	for _, r := range requests {
		with = append(with, say(r))
	}
	s := e.Stats()
	plain := s.Tokens - uint64(len(requests)) // steps that decode, without drafts
	counts := &s.Drafts[drafts.Model]
	right, steps := float64(counts.Accepted[0])/float64(counts.Run[0]), float64(s.DecodeRows)/float64(plain)
	t.Logf("first guesses %d, right %.3f; steps %.3f of plain; by depth %v, right %v", counts.Run[0], right, steps, counts.Run, counts.Accepted)
	require.Greater(t, counts.Run[0], plain/4)
	require.GreaterOrEqual(t, right, 0.6)
	require.LessOrEqual(t, steps, 0.65)
	for i, r := range requests {
		r.NoDrafts = true
		require.Equal(t, say(r), with[i])
	}
}

// BenchmarkBlock is how much sooner the answers to the held-out questions are there with the
// drafts of the block, in turns with those without.
func BenchmarkBlock(b *testing.B) {
	e, tok := startDrafting(b, nil)
	requests := askedQuestions(b, tok)
	var took [2]time.Duration
	for range b.N {
		for _, r := range requests {
			for i, none := range []bool{true, false} {
				r.NoDrafts = none
				began := time.Now()
				answer(b, e, r, func(string) {})
				took[i] += time.Since(began)
			}
		}
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "gain")
	b.ReportMetric(0, "ns/op")
}
