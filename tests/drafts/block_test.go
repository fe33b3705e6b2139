package drafts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/groupplan"
	"ringmaster/model"
	"ringmaster/model/synthetic"
	"ringmaster/node"
)

// sampled is what the engine answers to requests at once, token by token with its
// log-probabilities.
func sampled(t *testing.T, e *engine.Engine, requests []engine.Request) []string {
	out := make([]string, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			s, err := e.Submit(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			for {
				ev, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, tok := range ev.Tokens {
					out[i] += fmt.Sprintf("%d %v\n", tok.ID, tok.Logprob)
				}
				if ev.Finish != engine.FinishNone {
					out[i] += fmt.Sprint(ev.Finish, ev.Usage.Prompt, ev.Usage.Completion)
				}
			}
		})
	}
	all.Wait()
	return out
}

// blockModel writes a small model with a block for multi-token prediction.
func blockModel(t *testing.T) string {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	c.Block = synthetic.BlockParts
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	return path
}

// TestABlockChangesNothing: answers with drafts of the model's block for multi-token
// prediction have every token and log-probability of those without, at several temperatures
// and in a conversation that continues. The weights are random, so few drafts are right.
func TestABlockChangesNothing(t *testing.T) {
	path, began := blockModel(t), time.Now()
	answers := func(block bool) (out []string, counts engine.DraftStats) {
		n := open(t, path, 1, node.Block{Use: block})
		require.Equal(t, block, n.HasBlock())
		e, err := engine.New(n.Model, n.Tokens, engine.Options{ModelDrafts: block, MaxActive: 3, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Time { return began }}) // so that drafts are taken to pay
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close(context.Background())) }()
		r := rand.New(rand.NewPCG(3, 4))
		var requests []engine.Request
		for i, temperature := range []float64{0, 2, 2} {
			requests = append(requests, engine.Request{Prompt: text(r, 20+60*i, n.Tokens), MaxTokens: 24, IgnoreEOS: true, Logprobs: true,
				Sampling: engine.Sampling{Temperature: temperature, Seed: new(uint64(i))}})
		}
		out = sampled(t, e, requests)
		next := requests[1] // it continues a sequence of the prefix cache
		next.Prompt = append(next.Prompt, text(r, 5, n.Tokens)...)
		return append(out, sampled(t, e, []engine.Request{next})...), e.Stats().Drafts[drafts.Model]
	}
	want, none := answers(false)
	require.Zero(t, none.Run[0])
	got, counts := answers(true)
	for i := range want {
		require.True(t, want[i] == got[i], "answer %d differs", i)
	}
	t.Logf("drafts %v, accepted %v", counts.Run, counts.Accepted)
	require.Positive(t, counts.Run[0])
}

// TestABlockInStages: a block that is used only where there is one that can be is left out in
// stages, where the last layer is not on rank 0, and the group answers.
func TestABlockInStages(t *testing.T) {
	n := open(t, blockModel(t), 2, node.Block{Auto: true}, groupplan.Stages{Count: 2})
	require.False(t, n.HasBlock())
	e, err := engine.New(n.Model, n.Tokens, engine.Options{ModelDrafts: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	answers := sampled(t, e, []engine.Request{{Prompt: text(rand.New(rand.NewPCG(9, 10)), 30, n.Tokens), MaxTokens: 8, IgnoreEOS: true}})
	require.Contains(t, answers[0], "30 8")
	require.NoError(t, e.Close(context.Background()))
}

// TestABlockOnRanks: on two ranks, where only the first has the block, every step runs
// drafts of it behind some that are right. The rows that count have the bits of steps
// without drafts.
func TestABlockOnRanks(t *testing.T) {
	path, length := blockModel(t), 40
	run := func(m model.Model, pos int, want model.Want, tokens ...int32) ([][]float32, model.Step) {
		s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: tokens, Want: want}}}
		rows, err := m.Forward(t.Context(), s)
		require.NoError(t, err)
		for i := range rows {
			rows[i] = slices.Clone(rows[i])
		}
		return rows, s
	}
	best := func(row []float32) int32 { return int32(slices.Index(row, slices.Max(row))) }

	plain := open(t, path, 2, node.Block{})
	prompt := text(rand.New(rand.NewPCG(5, 6)), 150, plain.Tokens)
	var want [][]float32
	var answer []int32
	for pos, tokens := 0, prompt; len(answer) < length; {
		rows, s := run(plain.Model, pos, model.WantLast, tokens...)
		plain.Model.Commit(s)
		want, answer = append(want, rows[0]), append(answer, best(rows[0]))
		pos, tokens = pos+len(tokens), answer[len(answer)-1:]
	}

	m := open(t, path, 2, node.Block{Use: true}).Model
	got, s := run(m, 0, model.WantLast, prompt...)
	m.Commit(s)
	r, guessed := rand.New(rand.NewPCG(7, 8)), 0
	for len(got) < length {
		at := len(got) // tokens of the answer; the last of them is not run yet
		guesses, err := m.(model.Drafter).Draft(t.Context(), []model.DraftEntry{{Seq: 1, Token: answer[at-1], Most: 3}},
			func(_, _ int, row []float32) (int32, bool) { return best(row), true })
		require.NoError(t, err)
		guessed += len(guesses[0])
		right := min(r.IntN(4), length-at-1)
		tokens := slices.Concat(answer[at-1:at+right], guesses[0])
		rows, s := run(m, len(prompt)+at-1, model.WantAll, tokens...)
		kept := 1
		for kept < len(tokens) && at+kept < length && tokens[kept] == best(rows[kept-1]) {
			kept++
		}
		require.Greater(t, kept, right)
		s, err = s.Truncated([]int{kept})
		require.NoError(t, err)
		m.Commit(s)
		got = append(got, rows[:kept]...)
	}
	for i := range want {
		require.True(t, slices.Equal(want[i], got[i]), "row %d differs", i)
	}
	require.Greater(t, guessed, length)
}

// BenchmarkBlock is how much sooner an answer to random text is there with --drafts auto, in
// turns with off, where -model has a block for multi-token prediction. Where the weights are
// random no guess of it is right, and the ratio says what asking it costs.
func BenchmarkBlock(b *testing.B) {
	if *modelFile == "" {
		b.Skip("NOT APPLICABLE: -model names no file with a block for multi-token prediction")
	}
	n := open(b, *modelFile, *ranks, node.Block{Auto: true})
	require.True(b, n.HasBlock())
	now := time.Now
	if *cpuTime {
		now = processorTime
	}
	e, err := engine.New(n.Model, n.Tokens, engine.Options{Drafter: engine.TextDrafter, ModelDrafts: true, CacheEntries: -1, Clock: now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	defer func() { require.NoError(b, e.Close(context.Background())) }()
	r := rand.New(rand.NewPCG(11, 12))
	var took [2]time.Duration
	for range b.N {
		seed := r.Uint64()
		request := engine.Request{Prompt: text(r, *prompt, n.Tokens), MaxTokens: *tokens, IgnoreEOS: true, Sampling: engine.Sampling{Temperature: 1, Seed: &seed}}
		for i, none := range []bool{true, false} {
			request.NoDrafts = none
			s, err := e.Submit(b.Context(), request)
			require.NoError(b, err)
			var first time.Time
			for {
				_, err := s.Next(b.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(b, err)
				if first.IsZero() {
					first = now()
				}
			}
			took[i] += now().Sub(first)
		}
	}
	counts := e.Stats().Drafts
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "gain")
	b.ReportMetric(float64(counts[drafts.Model].Run[0])/float64(b.N), "guesses/op")
	b.ReportMetric(float64(counts[drafts.Model].Accepted[0])/float64(b.N), "right/op")
	b.ReportMetric(0, "ns/op")
}
