package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// oracle returns the answer to r by definition: one sequence, the whole history in one
// pass for each token, no engine.
func oracle(t *testing.T, r Request, context int) (tokens []int32, text string, finish FinishReason) {
	t.Helper()
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: context, MaxTokens: context})
	s := newSampler(r.Sampling, *r.Sampling.Seed)
	room := context - len(r.Prompt)
	if r.MaxTokens > 0 {
		room = min(room, r.MaxTokens)
	}
	history := slices.Clone(r.Prompt)
	var raw string
	from := 0
	var mem scratch
	for n := 0; ; n++ {
		rows, err := m.Forward(t.Context(), model.Step{Entries: []model.Entry{{
			Seq: model.SeqID(n + 1), Tokens: history, Want: model.WantLast,
		}}})
		require.NoError(t, err)
		var banned []int32
		if n < r.MinTokens {
			banned = []int32{enginetest.EOS}
		}
		id := s.draw(rows[0], banned, &mem)
		if id == enginetest.EOS && !r.IgnoreEOS {
			return tokens, string([]rune(raw)), FinishStop
		}
		tokens, history = append(tokens, id), append(history, id)
		raw += string(enginetest.Vocabulary{}.Bytes(id))
		if n < r.MinTokens {
			from = len(raw)
		}
		if cut, stop := naiveStop(raw, from, r.Stop); stop != "" {
			return tokens, string([]rune(raw[:cut])), FinishStop
		}
		if n+1 == room {
			return tokens, string([]rune(raw)), FinishLength
		}
	}
}

// randomRequest makes prompts that often extend an earlier prompt, or an earlier
// prompt with its answer.
func randomRequest(random *rand.Rand, old [][]int32) Request {
	seed := random.Uint64()
	r := Request{Sampling: Sampling{Seed: &seed}, MaxTokens: 1 + random.IntN(12), IgnoreEOS: random.IntN(2) == 0}
	if len(old) > 0 && random.IntN(3) > 0 {
		p := old[random.IntN(len(old))]
		r.Prompt = slices.Clone(p[:1+random.IntN(len(p))])
		if random.IntN(2) == 0 {
			r.Prompt = slices.Clone(p)
		}
	}
	for range random.IntN(20) {
		r.Prompt = append(r.Prompt, int32(random.IntN(256)))
	}
	r.Prompt = append(r.Prompt, int32(random.IntN(4)))
	r.Prompt = r.Prompt[:min(len(r.Prompt), 70)]
	switch random.IntN(4) {
	case 0:
		r.Sampling.Temperature = 0.5 + random.Float64()
		r.Sampling.TopP = random.Float64()
	case 1:
		r.Sampling.Temperature = 1
		r.Sampling.TopK = 5
		r.Sampling.FrequencyPenalty = 1
	case 2:
		r.MinTokens = random.IntN(r.MaxTokens + 1)
	}
	if random.IntN(3) == 0 {
		r.Stop = []string{string(rune(32 + random.IntN(64))), "e"}
	}
	for n := 1; n < len(r.Prompt) && random.IntN(2) == 0; n += 1 + random.IntN(20) {
		r.Branches = append(r.Branches, n)
	}
	r.PromptLogprobs = random.IntN(6) == 0
	r.Tenant = []string{"", "a", "b", "c"}[random.IntN(4)]
	if r.Tenant == "b" {
		r.Weight = len(r.Prompt) % 4
	}
	return r
}

// checkAnswer compares an answer with the oracle's.
func checkAnswer(t *testing.T, r Request, a answer, context int) {
	t.Helper()
	tokens, text, finish := oracle(t, r, context)
	// The oracle includes the tokens of the stop string, but the answer does not.
	if n := len(a.Tokens); n > len(tokens) || !slices.Equal(a.ids(), tokens[:n]) || a.StopText == "" && n != len(tokens) ||
		a.Text != text || a.Finish != finish {
		t.Errorf("prompt %v: got %v %q %q, want %v %q %q", r.Prompt, a.ids(), a.Text, a.Finish, tokens, text, finish)
	}
	if r.PromptLogprobs && len(a.Prompt) != len(r.Prompt) {
		t.Errorf("%d prompt tokens told, want %d", len(a.Prompt), len(r.Prompt))
	}
}

// TestRandomHistories runs random histories of requests, cancellations, steps that are
// aborted or run out of memory, and losses of all sequences, under random options.
// Whatever else happens, each request that gets an answer gets the same one that it would
// get alone.
func TestRandomHistories(t *testing.T) {
	rounds := 120
	var reused, answers, refused, starved, evicted, lost, forks, checkpoints, waited, drafted, accepted, partial, replayed int
	for seed := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			const contextLength = 80
			random := rand.New(rand.NewPCG(seed, 1))
			shape := enginetest.Options{
				ContextLength: contextLength, MaxTokens: 1 + random.IntN(24), Rewind: random.IntN(4) - 1,
			}
			if random.IntN(2) == 0 {
				shape.MemoryLimit = 90 + random.IntN(200)
			}
			if random.IntN(2) == 0 {
				shape.SequenceBudget = 140 + random.Int64N(300) // one sequence of the context has 138
				shape.CheckpointBytes = random.Int64N(12) << random.IntN(4)
			}
			if random.IntN(4) == 0 {
				shape.Rewind = contextLength // forks at any length
			} else if tail := rand.New(rand.NewPCG(seed, 4)); tail.IntN(2) == 0 {
				shape.Tail = 3 + tail.IntN(30) // more than it can be rewound by
				if tail.IntN(2) == 0 {
					shape.Replay = 1 + tail.IntN(20)
				}
			}
			loses := random.IntN(4) == 0 // the model sometimes loses its sequences
			away := false
			m, gate := gated(shape)
			knows := &knowing{wrong: rand.New(rand.NewPCG(seed, 3)), answers: map[uint64][]int32{}}
			e := start(t, m, Options{
				MaxActive: 1 + random.IntN(5), QueueLength: 50, PrefillChunk: 1 + random.IntN(12), CacheEntries: random.IntN(5) - 1,
				Drafter: []func(*Request) Drafter{nil, newNoise, knows.drafter, TextDrafter}[seed%4],
			})
			e.mu.Lock()
			e.sched.leastShared = 1 + random.IntN(10) // the prompts are short
			e.mu.Unlock()
			type asked struct {
				Request
				*Stream
				gone bool
			}
			var all []*asked
			var prompts [][]int32
			for range 60 {
				synctest.Wait()
				switch op := random.IntN(10); {
				case op == 9 && loses:
					if away = !away; away {
						m.Lose(errRank1)
					} else {
						m.Return()
					}
				case op < 3 && away:
					wantUnavailable(t, e)
				case op < 3:
					r := randomRequest(random, prompts)
					if shape.SequenceBudget > 0 {
						r.PromptLogprobs = false // larger than these budgets
					}
					if shape.SequenceBudget > 0 && random.IntN(2) == 0 {
						r.MaxTokens, r.MinTokens = 0, 0 // grows as long as there is memory
					}
					tokens, _, _ := oracle(t, r, contextLength)
					knows.learn(r, tokens)
					prompts = append(prompts, r.Prompt, slices.Concat(r.Prompt, tokens))
					all = append(all, &asked{Request: r, Stream: submit(t, e, r)})
				case op == 3 && len(all) > 0:
					a := all[random.IntN(len(all))]
					a.Close()
					a.gone = true
				default:
					select {
					case gate <- nil:
					default: // no step runs
					}
				}
			}
			m.Return()
			close(gate)
			for _, a := range all {
				got, err := collect(t.Context(), a.Stream)
				switch {
				case a.gone:
				case errors.Is(err, ErrNoMemory) && shape.MemoryLimit > 0:
					refused++
				case errors.Is(err, ErrNoMemory) && shape.SequenceBudget > 0 && a.MaxTokens == 0:
					starved++
				case errors.Is(err, ErrUnavailable) && loses:
					lost++
				case err != nil:
					t.Errorf("prompt %v: %v", a.Prompt, err)
				default:
					answers++
					checkAnswer(t, a.Request, got, contextLength)
					if got.Usage.Cached > 0 {
						reused++
					}
				}
			}
			if loses { // a loss while nothing was running is noticed only now
				ask(t, e, Request{Prompt: encode("last"), MaxTokens: 1})
			}
			synctest.Wait()
			stats := e.Stats()
			for source := range stats.Drafts {
				drafted += int(stats.Drafts[source].Run[0])
				accepted += int(stats.Drafts[source].Accepted[0])
			}
			if stats.Active != 0 || stats.Queued != 0 {
				t.Errorf("left over: %+v", stats)
			}
			if live, known := len(m.Live()), m.Known(); live != stats.CacheEntries || known != live {
				t.Errorf("the model has %d sequences and memory for %d, the engine %d entries", live, known, stats.CacheEntries)
			}
			e.mu.Lock()
			for id, at := range m.Checkpoints() {
				if counted := e.sched.mem.checkpoints[id]; counted != len(at) {
					t.Errorf("sequence %d has checkpoints at %v, the engine counts %d", id, at, counted)
				}
			}
			e.mu.Unlock()
			evicted += int(stats.Evicted)
			forks += m.Work().Forks
			waited += int(stats.Hits.Waited)
			replayed += int(stats.Hits.Replayed)
			for _, s := range m.Steps() {
				checkpoints += len(s.Checkpoints)
				for _, e := range s.Entries {
					if e.Until > e.Pos+len(e.Tokens) {
						partial++
					}
				}
			}
			if stats.Memory > stats.MemoryBudget && stats.MemoryBudget > 0 {
				t.Errorf("%d bytes are held, the budget is %d", stats.Memory, stats.MemoryBudget)
			}
			if v := m.Violations(); len(v) > 0 {
				t.Errorf("violations: %v", v)
			}
			if t.Failed() {
				t.Logf("seed %d, model %+v", seed, shape)
			}
		})
	}
	t.Logf("%d forks, %d changes of checkpoints, %d waited for a prefill, %d replays", forks, checkpoints, waited, replayed)
	if forks < 100 || checkpoints < 100 || waited < 10 {
		t.Error("the histories do not reach forks, checkpoints and waiting for a prefill")
	}
	t.Logf("%d answers, %d with reuse, %d without memory, %d beyond the budget, %d entries evicted, %d lost", answers, reused, refused, starved, evicted, lost)
	t.Logf("%d chunks of prompts may leave rows out", partial)
	if partial < 500 || replayed < 10 {
		t.Error("the histories do not reach partial sequences and replays")
	}
	t.Logf("%d drafts, %d accepted", drafted, accepted)
	if drafted < 500 || accepted < 200 || accepted > drafted-200 {
		t.Error("the histories do not reach right and wrong drafts")
	}
	if reused == 0 || refused == 0 || starved == 0 || evicted == 0 || lost == 0 {
		t.Error("the histories do not reach reuse, lack of memory, growth beyond the budget, eviction and loss")
	}
}

// TestManyReadersAtOnce is the same without a fixed order, for the race
// detector.
func TestManyReadersAtOnce(t *testing.T) {
	const contextLength = 80
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: contextLength, MaxTokens: 16})
	e := start(t, m, Options{MaxActive: 3, CacheEntries: 2, QueueLength: 100, Drafter: newNoise})
	var all sync.WaitGroup
	for i := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(i, 2))
			var prompts [][]int32
			for range 20 {
				r := randomRequest(random, prompts)
				prompts = append(prompts, r.Prompt)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				s, err := e.Submit(ctx, r)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				switch random.IntN(4) {
				case 0:
					s.Close()
				case 1:
					cancel()
				default:
					a, err := collect(ctx, s)
					if err != nil {
						t.Error(fmt.Errorf("prompt %v: %w", r.Prompt, err))
					} else {
						checkAnswer(t, r, a, contextLength)
					}
				}
				e.Stats()
				cancel()
			}
		})
	}
	all.Wait()
}
