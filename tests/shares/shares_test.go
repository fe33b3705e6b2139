// Package shares_test runs a long prompt beside short conversations, with the engine
// and a real model, and checks by the steps that no conversation waits for the prompt. It
// prints the time between two tokens beside the time of a chunk alone; no time decides
// the test. To measure:
//
//	go test ./tests/shares -v -timeout 2h -args -model FILE -prompt 100000 -chunk 256
//
// On a machine that others use too, add -threads 1 -cpu. The times are then processor
// time of the process; with one thread that is about the time on a machine of its own.
package shares_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/builtin"
	"ringmaster/model/deepseek4"
	"ringmaster/model/tokenizer"
)

var (
	modelFile = flag.String("model", "", "GGUF file; default is the built-in model")
	promptLen = flag.Int("prompt", 4000, "tokens of the long prompt")
	chats     = flag.Int("chats", 10, "conversations beside it")
	window    = flag.Int("window", 16, "tokens of an answer, and steps without conversations after it")
	chunk     = flag.Int("chunk", 64, "prefill chunk")
	cpuTime   = flag.Bool("cpu", false, "measure processor time of the process")
	threads   = flag.Int("threads", runtime.NumCPU(), "threads of the kernels")
)

// chatPrompt is the tokens of the prompt of a conversation.
const chatPrompt = 20

// ran is a step that the model has run.
type ran struct {
	took   time.Duration // since the end of the step before: what a reader waits for
	prompt int           // tokens of the long prompt
	pos    int           // of the first of them
	rest   int           // tokens of prompts of conversations
	tokens []model.SeqID // conversations that got the row of their next token
}

// recorder is a model that records its steps. The long prompt is sequence 1.
type recorder struct {
	model.Model
	mu      sync.Mutex
	changed *sync.Cond
	steps   []ran
	last    time.Duration
	over    bool // the long prompt has run
}

func (r *recorder) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	rows, err := r.Model.Forward(ctx, s)
	if err != nil || len(s.Entries) == 0 {
		return rows, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := clock()
	x := ran{}
	for _, e := range s.Entries {
		switch {
		case e.Seq == 1:
			x.prompt, x.pos = len(e.Tokens), e.Pos
			r.over = e.Pos+len(e.Tokens) == *promptLen
		case e.Want == model.WantLast:
			x.tokens = append(x.tokens, e.Seq)
			x.rest += len(e.Tokens) - 1
		default:
			x.rest += len(e.Tokens)
		}
	}
	x.took, r.last = now-r.last, now
	r.steps = append(r.steps, x)
	r.changed.Broadcast()
	return rows, err
}

var start = time.Now()

// clock is the time since the start of the test, or with -cpu processor time.
func clock() time.Duration {
	if !*cpuTime {
		return time.Since(start)
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wait waits until n more steps have run, or the long prompt has.
func (r *recorder) wait(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for until := len(r.steps) + n; len(r.steps) < until && !r.over; {
		r.changed.Wait()
	}
}

func ids(random *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = random.Int32N(int32(vocab))
	}
	return tokens
}

// TestLongPromptBesideChats: while a long prompt runs, each of the conversations of
// another tenant has its first token as soon as half of the prefill budget allows, and
// then one token in every step, beside at most one chunk of the prompt.
func TestLongPromptBesideChats(t *testing.T) {
	open := builtin.Open
	if *modelFile != "" {
		open = func() (*gguf.File, error) { return gguf.Open(*modelFile) }
	}
	f, err := open()
	require.NoError(t, err)
	defer f.Close()
	b, err := cpu.New(*threads)
	require.NoError(t, err)
	defer b.Close()
	m, err := deepseek4.Open(f, b, deepseek4.Options{})
	require.NoError(t, err)
	defer m.Close()
	vocabulary, err := tokenizer.FromGGUF(f)
	require.NoError(t, err)
	r := &recorder{Model: m}
	r.changed = sync.NewCond(&r.mu)
	e, err := engine.New(r, vocabulary, engine.Options{MaxActive: *chats + 1, QueueLength: *chats, PrefillChunk: *chunk, TokenLatency: -1, CacheEntries: -1,
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close(context.Background())) }()

	random := rand.New(rand.NewPCG(1, 2))
	long, err := e.Submit(t.Context(), engine.Request{Prompt: ids(random, *promptLen, vocabulary.Size()), MaxTokens: 1, Tenant: "long"})
	require.NoError(t, err)
	r.wait(*window)
	shown := 0
	for over := false; !over; {
		var requests []engine.Request
		for range *chats {
			requests = append(requests, engine.Request{Prompt: ids(random, chatPrompt, vocabulary.Size()), MaxTokens: *window, IgnoreEOS: true, Tenant: "chats"})
		}
		streams, err := e.SubmitAll(t.Context(), requests)
		require.NoError(t, err)
		for _, s := range streams {
			read(t, s)
		}
		r.wait(*window)
		r.mu.Lock()
		over = r.over
		if last := r.steps[len(r.steps)-1]; last.pos >= shown+*promptLen/10 {
			shown = last.pos
			report(t, r.steps)
		}
		r.mu.Unlock()
	}
	read(t, long)
	check(t, r.steps)
	report(t, r.steps)
}

func read(t *testing.T, s *engine.Stream) {
	for {
		if _, err := s.Next(t.Context()); err != nil {
			require.ErrorIs(t, err, io.EOF)
			require.False(t, errors.Is(err, context.Canceled))
			return
		}
	}
}

// check holds the steps with a chunk of the long prompt against the promise.
func check(t *testing.T, steps []ran) {
	first, count, beside := map[model.SeqID]int{}, map[model.SeqID]int{}, 0
	half := *chunk / 2 // of the prefill budget, the share of one of two tenants
	soon := (*chats*chatPrompt + half - 1) / half
	waits := 0 // steps since the conversations were submitted, without a token for them
	for i, s := range steps {
		if s.prompt == 0 {
			break
		}
		require.LessOrEqual(t, s.prompt+s.rest, *chunk, "step %d: prompt tokens", i)
		if len(s.tokens) == 0 && s.rest > 0 {
			waits++
			require.LessOrEqual(t, waits, soon, "step %d: steps before the first token", i)
		}
		for _, id := range s.tokens {
			waits = 0
			if _, ok := first[id]; !ok {
				first[id] = i
			}
			require.Equal(t, i-first[id], count[id], "step %d: sequence %d was left out", i, id)
			count[id]++
		}
		if len(s.tokens) == *chats {
			beside++
		}
	}
	require.Greater(t, beside, *window/2, "steps with all conversations beside the prompt")
}

// report prints, for each tenth of the prompt, the time of a step with a whole chunk of
// the prompt alone, and the time between two tokens of the conversations beside it.
func report(t *testing.T, steps []ran) {
	var ratios []float64
	t.Logf("%d tokens of prompt in chunks of %d beside %d conversations", *promptLen, *chunk, *chats)
	t.Logf("%17s %13s %17s %11s %6s %6s", "position", "chunk alone", "between tokens", "95 of 100", "ratio", "worst")
	for tenth := range 10 {
		from, to := *promptLen*tenth/10, *promptLen*(tenth+1)/10
		var alone, beside []time.Duration
		for i := 1; i < len(steps); i++ {
			s, before := steps[i], steps[i-1]
			switch {
			case s.pos < from || s.pos >= to || s.prompt < *chunk || before.prompt == 0:
			case len(s.tokens) == 0:
				alone = append(alone, s.took)
			case len(s.tokens) == *chats && slices.Equal(sorted(s.tokens), sorted(before.tokens)):
				beside = append(beside, s.took)
			}
		}
		if len(alone) == 0 || len(beside) == 0 {
			continue
		}
		slices.Sort(alone)
		slices.Sort(beside)
		chunkTime := alone[len(alone)/2]
		for _, d := range beside {
			ratios = append(ratios, float64(d)/float64(chunkTime))
		}
		at := func(part int) time.Duration { return beside[(len(beside)-1)*part/100].Round(100 * time.Microsecond) }
		t.Logf("%7d to %6d %13v %17v %11v %6.2f %6.2f", from, to, chunkTime.Round(100*time.Microsecond), at(50), at(95),
			float64(at(50))/float64(chunkTime), float64(at(100))/float64(chunkTime))
	}
	if len(ratios) > 0 {
		slices.Sort(ratios)
		n := len(ratios) - 1
		t.Logf("time between tokens over a chunk alone: median %.2f, 95 of 100 %.2f, worst %.2f, of %d steps", ratios[n/2], ratios[n*95/100], ratios[n], len(ratios))
	}
}

func sorted(x []model.SeqID) []model.SeqID { return slices.Sorted(slices.Values(x)) }
