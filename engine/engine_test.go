package engine

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

func TestAnswerOfAScript(t *testing.T) {
	e := start(t, enginetest.Script("Paris is it."), Options{})
	a := ask(t, e, Request{Prompt: encode("Where?")})
	if a.Text != "Paris is it." || a.Finish != FinishStop || a.StopText != "" {
		t.Fatalf("got %+v", a.Event)
	}
	require.Equal(t, Usage{Prompt: 6, Completion: 13}, a.Usage)
	require.Equal(t, a.Text, tokenText(a.Tokens), "the tokens beside the text")
}

func TestEndsOfAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		req        Request
		text       string
		finish     FinishReason
		stop       string
		completion int
	}{
		"end token":        {Request{}, "abcXYdef", FinishStop, "", 9},
		"max_tokens":       {Request{MaxTokens: 3}, "abc", FinishLength, "", 3},
		"stop":             {Request{Stop: []string{"XY", "q"}}, "abc", FinishStop, "XY", 5},
		"stop at the end":  {Request{Stop: []string{"def"}}, "abcXY", FinishStop, "def", 8},
		"held, then free":  {Request{Stop: []string{"XZ", "deg"}}, "abcXYdef", FinishStop, "", 9},
		"held at the max":  {Request{Stop: []string{"XZ"}, MaxTokens: 4}, "abcX", FinishLength, "", 4},
		"min_tokens":       {Request{Stop: []string{"b", "e"}, MinTokens: 4}, "abcXYd", FinishStop, "e", 7},
		"stop begun early": {Request{Stop: []string{"bc"}, MinTokens: 2}, "abcXYdef", FinishStop, "", 9},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, enginetest.Script("abcXYdef"), Options{})
			c.req.Prompt = encode("?")
			a := ask(t, e, c.req)
			if a.Text != c.text || a.Finish != c.finish || a.StopText != c.stop || a.Usage.Completion != c.completion {
				t.Fatalf("got %+v", a.Event)
			}
			require.Equal(t, a.Text, tokenText(a.Tokens), "the tokens beside the text")
		})
	}
}

func TestEndTokensAreHeldOffAndIgnored(t *testing.T) {
	e := start(t, enginetest.Script("ab"), Options{})
	a := ask(t, e, Request{Prompt: encode("?"), MinTokens: 5, MaxTokens: 40})
	if a.Usage.Completion < 6 || slices.Contains(a.ids()[:5], enginetest.EOS) {
		t.Fatalf("min_tokens 5 gave %v", a.ids())
	}
	a = ask(t, e, Request{Prompt: encode("!"), IgnoreEOS: true, MaxTokens: 4})
	if a.Finish != FinishLength || a.Usage.Completion != 4 || a.ids()[2] != enginetest.EOS {
		t.Fatalf("ignore_eos gave %v, %+v", a.ids(), a.Event)
	}
}

func TestTheContextEndsAnAnswer(t *testing.T) {
	e := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: 10}), Options{})
	a := ask(t, e, Request{Prompt: encode("1234567"), IgnoreEOS: true})
	require.Equal(t, FinishLength, a.Finish)
	require.Equal(t, 3, a.Usage.Completion)
	_, err := e.Submit(testContext(t), Request{Prompt: encode("1234567890")})
	require.ErrorIs(t, err, ErrTooLong, "a prompt as long as the context")
}

func TestTextIsWholeUTF8(t *testing.T) {
	e := start(t, enginetest.Script("añ€😀\xe2\x82z\xf0\x9f"), Options{})
	ctx := testContext(t)
	s := submit(t, e, Request{Prompt: encode("?")})
	var text string
	for {
		ev, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Equal(t, ev.Text, strings.ToValidUTF8(ev.Text, "!"))
		text += ev.Text
	}
	require.Equal(t, "añ€😀\ufffd\ufffdz\ufffd\ufffd", text)
}

func TestEntriesAreReused(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
	e := start(t, m, Options{})
	first := ask(t, e, Request{Prompt: encode("hello there"), MaxTokens: 4, IgnoreEOS: true})
	// Every sampled token but the last has run.
	longer := append(append(encode("hello there"), first.ids()...), encode(" and on")...)
	a := ask(t, e, Request{Prompt: longer, MaxTokens: 5, IgnoreEOS: true})
	require.Equal(t, 11+3, a.Usage.Cached)
	alone := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{CacheEntries: -1})
	want := ask(t, alone, Request{Prompt: longer, MaxTokens: 5, IgnoreEOS: true})
	require.Equal(t, want.ids(), a.ids(), "with and without reuse")
	if got := e.Stats(); got.CachedTokens != 14 || got.PrefillTokens != 11+8 || got.Tokens != 9 || got.CacheEntries != 1 {
		t.Fatalf("stats %+v", got)
	}
}

func TestTheSamePromptRunsOneToken(t *testing.T) {
	e := start(t, enginetest.Script(""), Options{})
	for i, want := range []int{0, 10} {
		a := ask(t, e, Request{Prompt: encode("hello world")})
		require.Equal(t, want, a.Usage.Cached, "time %d", i)
		require.Equal(t, FinishStop, a.Finish, "time %d", i)
	}
}

func TestSeeds(t *testing.T) {
	e := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{})
	say := func(seed uint64) []int32 {
		return ask(t, e, Request{
			Prompt: encode("dice"), MaxTokens: 20, IgnoreEOS: true,
			Sampling: Sampling{Temperature: 1, Seed: &seed},
		}).ids()
	}
	require.Equal(t, say(7), say(7), "one seed, two texts")
	require.NotEqual(t, say(7), say(8), "two seeds, one text")
}

func TestLogprobs(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
	e := start(t, m, Options{PrefillChunk: 3})
	a := ask(t, e, Request{
		Prompt: encode("logprobs"), MaxTokens: 6, IgnoreEOS: true,
		Logprobs: true, PromptLogprobs: true, TopLogprobs: 5,
	})
	history := append(encode("logprobs"), a.ids()...)
	if len(a.Prompt) != 8 || a.Prompt[0].Logprob != 0 || a.Prompt[0].Top != nil {
		t.Fatalf("prompt %+v", a.Prompt)
	}
	ref := enginetest.NewModel(enginetest.Size, enginetest.Options{})
	rows, err := ref.Forward(t.Context(), model.Step{Entries: []model.Entry{{Seq: 1, Tokens: history, Want: model.WantAll}}})
	require.NoError(t, err)
	for i, tok := range append(slices.Clone(a.Prompt), a.Tokens...) {
		if i == 0 {
			continue
		}
		sum := 0.0
		for _, x := range rows[i-1] {
			sum += math.Exp(float64(x))
		}
		if want := float64(rows[i-1][history[i]]) - math.Log(sum); tok.ID != history[i] || math.Abs(tok.Logprob-want) > 1e-9 {
			t.Fatalf("token %d: %d with %v, want %d with %v", i, tok.ID, tok.Logprob, history[i], want)
		}
		if len(tok.Top) != 5 || !slices.IsSortedFunc(tok.Top, func(a, b Alternative) int {
			return -int(math.Copysign(1, a.Logprob-b.Logprob))
		}) {
			t.Fatalf("token %d: alternatives %+v", i, tok.Top)
		}
		if i >= 8 && (tok.Top[0].ID != tok.ID || tok.Top[0].Logprob != tok.Logprob) {
			t.Fatalf("the greedy token %+v is not the most likely", tok)
		}
	}
}

func TestProgressOfALongPrompt(t *testing.T) {
	steps := make(chan struct{})
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{
		OnForward: func(ctx context.Context, _ model.Step) error { return receive(ctx, steps) },
	})
	e := start(t, m, Options{PrefillChunk: 4})
	ctx := testContext(t)
	s := submit(t, e, Request{Prompt: encode("0123456789"), MaxTokens: 1})
	for _, want := range []Progress{{4, 10}, {8, 10}} {
		steps <- struct{}{}
		ev, err := s.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, want, ev.Progress)
	}
	steps <- struct{}{}
	require.Equal(t, FinishLength, finish(t, s).Finish)
}

// receive waits for a value or for the end of ctx, as a step of a model would.
func receive(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestASlowReaderLosesNothingAndStallsNoOther(t *testing.T) {
	text := strings.Repeat("0123456789", 30)
	e := start(t, enginetest.Script(text), Options{})
	ctx := testContext(t)
	slow := submit(t, e, Request{Prompt: encode("slow")})
	// Both run concurrently, so when this one has ended so has the other.
	a := ask(t, e, Request{Prompt: encode("fast, and a little longer")})
	require.Equal(t, text, a.Text, "the fast reader")
	a, err := collect(ctx, slow)
	if err != nil || a.Text != text || len(a.Tokens) != len(text) || a.Finish != FinishStop {
		t.Fatalf("slow reader got %q, %d tokens, %v", a.Text, len(a.Tokens), err)
	}
	require.LessOrEqual(t, a.events, streamBuffer, "events that waited")
}

func TestBusyAndReady(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{}, 9)
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{
		OnForward: func(ctx context.Context, _ model.Step) error {
			entered <- struct{}{}
			return receive(ctx, gate)
		},
	})
	var now atomic.Int64
	e := start(t, m, Options{
		MaxActive: 1, QueueLength: 1, StuckAfter: time.Minute,
		Clock: func() time.Time { return time.Unix(now.Load(), 0) },
	})
	require.NoError(t, e.Ready(), "idle")
	ctx := testContext(t)
	var streams []*Stream
	for range 2 {
		streams = append(streams, submit(t, e, Request{Prompt: encode("x"), MaxTokens: 1}))
	}
	_, err := e.Submit(ctx, Request{Prompt: encode("x")})
	require.ErrorIs(t, err, ErrBusy, "third request")
	require.ErrorIs(t, e.Ready(), ErrBusy)
	streams[1].Close()
	require.NoError(t, e.Ready(), "room again")
	<-entered
	now.Store(61)
	require.ErrorContains(t, e.Ready(), "stuck", "a step of 61 s")
	close(gate)
	finish(t, streams[0])
	_, err = streams[1].Next(ctx)
	require.ErrorIs(t, err, context.Canceled, "closed stream")
}

func TestInvalidRequestsNameTheField(t *testing.T) {
	e := start(t, enginetest.Script("x"), Options{})
	for want, change := range map[string]func(r *Request){
		"prompt is empty":                       func(r *Request) { r.Prompt = nil },
		"prompt token 1 is 260":                 func(r *Request) { r.Prompt = []int32{1, 260} },
		"branch 0 is 0, it must be greater":     func(r *Request) { r.Branches = []int{0} },
		"branch 1 is 1, it must be greater":     func(r *Request) { r.Branches = []int{1, 1} },
		"branch 0 is 2, it must be greater":     func(r *Request) { r.Branches = []int{2} },
		"temperature is NaN":                    func(r *Request) { r.Sampling.Temperature = math.NaN() },
		"temperature is 3, it must be from 0":   func(r *Request) { r.Sampling.Temperature = 3 },
		"top_p is 1.5":                          func(r *Request) { r.Sampling.TopP = 1.5 },
		"min_p is -1":                           func(r *Request) { r.Sampling.MinP = -1 },
		"top_k is -1":                           func(r *Request) { r.Sampling.TopK = -1 },
		"presence_penalty is 2.5":               func(r *Request) { r.Sampling.PresencePenalty = 2.5 },
		"frequency_penalty is -3":               func(r *Request) { r.Sampling.FrequencyPenalty = -3 },
		"logit_bias token is 999":               func(r *Request) { r.Sampling.LogitBias = map[int32]float64{999: 1} },
		"logit_bias of token 5 is 101":          func(r *Request) { r.Sampling.LogitBias = map[int32]float64{5: 101} },
		"max_tokens is -1":                      func(r *Request) { r.MaxTokens = -1 },
		"min_tokens is 3, it must be at most":   func(r *Request) { r.MinTokens, r.MaxTokens = 3, 2 },
		"top_logprobs is 21, it must be from 0": func(r *Request) { r.Logprobs, r.TopLogprobs = true, 21 },
		"top_logprobs is 2, it must be 0":       func(r *Request) { r.TopLogprobs = 2 },
		"stop string 1 is empty":                func(r *Request) { r.Stop = []string{"a", ""} },
	} {
		r := Request{Prompt: encode("x")}
		change(&r)
		_, err := e.Submit(t.Context(), r)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	// As many branches as there are tokens.
	s, err := e.Submit(t.Context(), Request{Prompt: encode("xyz"), Branches: []int{1, 2, 3}})
	require.NoError(t, err)
	finish(t, s)
}

func TestPaddingOfALogitsRowIsNeverDrawn(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size+500, enginetest.Options{})
	e := start(t, m, Options{})
	seed := uint64(3)
	a := ask(t, e, Request{
		Prompt: encode("pad"), MaxTokens: 60, IgnoreEOS: true, Logprobs: true, TopLogprobs: 20,
		Sampling: Sampling{Temperature: 2, Seed: &seed},
	})
	for _, tok := range a.Tokens {
		if tok.ID >= enginetest.Size || slices.ContainsFunc(tok.Top, func(a Alternative) bool { return a.ID >= enginetest.Size }) {
			t.Fatalf("drew %+v", tok)
		}
	}
	_, err := New(enginetest.NewModel(100, enginetest.Options{}), enginetest.Vocabulary{}, Options{})
	require.ErrorIs(t, err, ErrInvalid, "a vocabulary larger than the logits")
}

func TestSubmitKeepsNothingOfTheCaller(t *testing.T) {
	m, gate := gated(enginetest.Options{})
	e := start(t, m, Options{PrefillChunk: 2})
	r := Request{Prompt: encode("abcdef"), MaxTokens: 1}
	s := submit(t, e, r)
	copy(r.Prompt, encode("xxxxxx"))
	close(gate)
	finish(t, s)
	require.Equal(t, map[model.SeqID][]int32{1: encode("abcdef")}, m.Live(), "what the model has run")
}
