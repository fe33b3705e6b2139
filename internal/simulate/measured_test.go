package simulate

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
	"ringmaster/model"
)

// words is a vocabulary in which each conversation can begin with its own token.
type words struct{}

func (words) Size() int           { return 512 }
func (words) Bytes(int32) []byte  { return []byte("x") }
func (words) IsEnd(id int32) bool { return false }

// TestSimulationIsTheEngine: an engine with its loop, its streams and a model with the
// simulation's step times, under the same clients, answers the same requests at the same
// times, in the same order, with the same tokens from its prefix cache and the same
// number of requests in flight.
func TestSimulationIsTheEngine(t *testing.T) {
	cases := map[string]func(*Config){
		"light":  func(c *Config) { c.Workload.Rate, c.Workload.Burst = 0.05, 1 },
		"heavy":  func(*Config) {},
		"bursts": func(c *Config) { c.Workload.Burst = 8; c.Engine.CacheEntries = 2 },
		"full":   func(c *Config) { c.Workload.Rate *= 3 },
		// One at a time, because the order of two clients that ask again at the same
		// moment is undefined.
		"retries": func(c *Config) { c.Workload.Rate, c.Workload.Burst, c.Client.Retries = c.Workload.Rate*3, 1, 2 },
		"fewest":  func(c *Config) { c.Engine.MaxActive, c.Engine.CacheEntries = 1, -1 },
		"memory":  func(c *Config) { c.Memory = tokenMemory(3000) },
		"drafts":  func(c *Config) { c.Drafts = 0.8 },
		"guesses": func(c *Config) { c.Drafts, c.Memory = 0.3, tokenMemory(3000) },
	}
	for name, change := range cases {
		if always := name == "heavy" || name == "memory" || name == "retries" || name == "drafts"; !always && !testenv.At(testenv.Full) {
			continue
		}
		config := busy(1)
		config.Duration, config.Warmup, config.Client.Retries = 90*time.Second, 0, 0
		change(&config)
		var want []Request
		config.Trace = func(r Request) { want = append(want, r) }
		report, err := Run(config)
		require.NoError(t, err)
		require.NotEmpty(t, want)
		var got []Request
		synctest.Test(t, func(t *testing.T) { got = realGroup(t, config) })
		for _, all := range [][]Request{want, got} { // goroutines decide the order in which those of one step end
			slices.SortStableFunc(all, func(a, b Request) int {
				return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Conversation, b.Conversation))
			})
		}
		for i := range min(len(want), len(got)) {
			require.Equal(t, want[i], got[i], "%s: request %d", name, i)
		}
		require.Len(t, got, len(want), name)
		require.Equal(t, config.Drafts > 0, report.PerStep > 1, name)
		t.Logf("%s: %d requests, %.0f%% of the prompts' tokens cached, %d refused, %.2f tokens a step", name, len(got), 100*report.Cached, report.Refused, report.PerStep)
	}
}

// realModel has the budget of a simulation.
type realModel struct {
	*enginetest.Model
	memory model.Sized
}

func (m realModel) SequenceBytes(length int) int64 { return m.memory.SequenceBytes(length) }
func (m realModel) CheckpointBytes() int64         { return m.memory.CheckpointBytes() }
func (m realModel) SequenceBudget() int64          { return m.memory.SequenceBudget() }

// realGroup runs a configuration of one group on an engine, in the time of a synctest
// bubble.
func realGroup(t *testing.T, c Config) []Request {
	var m model.Model
	var says func([]int32) string
	if c.Drafts > 0 {
		says = func([]int32) string { return strings.Repeat("x", c.Model.ContextLength) }
	}
	fake := enginetest.NewModel(words{}.Size(), enginetest.Options{
		ContextLength: c.Model.ContextLength, MaxTokens: c.Model.MaxTokens, Rewind: -1, Say: says,
		OnForward: func(ctx context.Context, step model.Step) error {
			prompt, decoding, drafts := 0, 0, 0
			for _, e := range step.Entries {
				if e.Want != model.WantAll && (e.Pos == 0 || len(e.Tokens) > 1 || e.Tokens[0] >= spoken) {
					prompt += len(e.Tokens)
				} else {
					decoding++
					drafts += len(e.Tokens) - 1
				}
			}
			if len(step.Entries) == 0 {
				return nil
			}
			return wait(ctx, c.Step(prompt, decoding, drafts))
		},
	})
	m = fake
	if c.Memory != nil {
		m = realModel{fake, c.Memory}
	}
	if c.Drafts > 0 {
		c.Engine.Drafter = func(*engine.Request) engine.Drafter { return &guesser{config: &c} }
	}
	c.Engine.Logger = slog.New(slog.DiscardHandler)
	e, err := engine.New(m, words{}, c.Engine)
	require.NoError(t, err)
	var banned []int32
	for id := spoken; id < (words{}).Size(); id++ {
		banned = append(banned, int32(id))
	}
	began := time.Now()
	var mu sync.Mutex
	var all []Request
	var clients sync.WaitGroup
	client := func(conv *conversation) {
		var history []int32
		for time.Since(began) < c.Duration {
			if _, fits := conv.extend(c.Model.ContextLength, mostTokens); !fits {
				break
			}
			for len(history) < len(conv.prompt) {
				history = append(history, said(conv.number))
			}
			r := Request{Conversation: conv.number, Turn: conv.turn, Prompt: len(conv.prompt), Answer: len(conv.answer), Asked: time.Since(began)}
			r.Outcome = Refused
			for try := 0; ; try++ {
				s, err := e.Submit(context.Background(), engine.Request{Prompt: history, MaxTokens: len(conv.answer), IgnoreEOS: true, Banned: banned})
				if errors.Is(err, engine.ErrBusy) && try < c.Client.Retries {
					require.NoError(t, wait(context.Background(), c.Client.RetryAfter))
					continue
				}
				if errors.Is(err, engine.ErrBusy) || errors.Is(err, engine.ErrTooLarge) {
					break
				}
				require.NoError(t, err)
				stats := e.Stats()
				r.Outcome, r.InFlight = Answered, stats.Active+stats.Queued
				for {
					ev, err := s.Next(context.Background())
					if errors.Is(err, io.EOF) {
						r.Started = s.Times().Started.Sub(began)
						break
					}
					require.NoError(t, err)
					for _, token := range ev.Tokens {
						if r.First == 0 {
							r.First, r.Cached = time.Since(began), ev.Usage.Cached
						}
						history = append(history, token.ID)
					}
				}
				break
			}
			r.Ended = time.Since(began)
			mu.Lock()
			all = append(all, r)
			mu.Unlock()
			if r.Outcome != Answered || !conv.continues() {
				return
			}
			require.NoError(t, wait(context.Background(), conv.think()))
		}
	}
	for arrivals := newArrivals(c.Workload, c.Seed); ; {
		d, n := arrivals.next()
		if time.Since(began)+d >= c.Duration {
			break
		}
		require.NoError(t, wait(context.Background(), d))
		for range n {
			conv := arrivals.conversation()
			clients.Go(func() { client(conv) })
			synctest.Wait() // those of a burst come in order
		}
	}
	clients.Wait()
	require.NoError(t, e.Close(context.Background()))
	require.Empty(t, fake.Violations())
	return all
}

// guesser has the drafts of the simulation for answers of x.
type guesser struct {
	config  *Config
	history []int32
}

func (g *guesser) Add(ids ...int32)              { g.history = append(g.history, ids...) }
func (g *guesser) Beside(drafts.Source, []int32) {}
func (g *guesser) Draft(most int) drafts.Guess {
	return g.config.guess(int(g.history[0]-spoken), len(g.history), slices.Repeat([]int32{'x'}, most))
}

// spoken is the first of the tokens that users say; the model does not sample them.
const spoken = 256

// said returns the token that the user of a conversation says.
func said(conversation int) int32 { return int32(spoken + conversation%(words{}.Size()-spoken)) }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
