package api

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/drafts"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

// act is one step of a fake stream: wait, then return an event or an error.
type act struct {
	wait  <-chan struct{} // nil: do not wait
	event engine.Event
	err   error
}

// fakeEngine answers the i-th request with the acts that script returns.
type fakeEngine struct {
	script func(i int, r engine.Request) ([]act, error)
	ready  error
	// recovering is what Recovering returns; nil: the model does not recover.
	recovering func() (time.Duration, bool)
	busy       error
	times      engine.Times // of every answer

	mu       sync.Mutex
	requests []engine.Request
	streams  []*fakeStream
}

func (e *fakeEngine) SubmitAll(ctx context.Context, requests []engine.Request) ([]Stream, error) {
	var out []Stream
	for _, r := range requests {
		s, err := e.submit(ctx, r)
		if err != nil {
			for _, s := range out {
				s.Close()
			}
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (e *fakeEngine) submit(ctx context.Context, r engine.Request) (Stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	acts, err := e.script(len(e.requests), r)
	e.requests = append(e.requests, r)
	if err != nil {
		return nil, err
	}
	s := &fakeStream{ctx: ctx, acts: acts, closed: make(chan struct{}), times: e.times}
	e.streams = append(e.streams, s)
	return s, nil
}

func (e *fakeEngine) Admit(string) (func(), error) { return func() {}, e.busy }

func (e *fakeEngine) Recovering() (time.Duration, bool) {
	if e.recovering == nil {
		return 0, false
	}
	return e.recovering()
}

func (e *fakeEngine) Ready() error { return e.ready }

func (e *fakeEngine) Stats() engine.Stats {
	s := engine.Stats{Queued: 3, Active: 2, Steps: 70, DecodeRows: 60}
	s.Drafts[drafts.Text].Run[1], s.Drafts[drafts.Text].Accepted[1] = 9, 7
	return s
}

// submitted returns the requests so far.
func (e *fakeEngine) submitted() []engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]engine.Request(nil), e.requests...)
}

// last returns the last request so far.
func (e *fakeEngine) last() engine.Request {
	requests := e.submitted()
	return requests[len(requests)-1]
}

type fakeStream struct {
	awaited bool
	ctx     context.Context // of Submit
	acts    []act
	once    sync.Once
	closed  chan struct{}
	times   engine.Times
}

func (s *fakeStream) Next(ctx context.Context) (engine.Event, error) {
	if len(s.acts) == 0 {
		return engine.Event{}, io.EOF
	}
	a := s.acts[0]
	s.acts = s.acts[1:]
	if a.wait != nil {
		select {
		case <-a.wait:
		case <-ctx.Done():
			return engine.Event{}, ctx.Err()
		case <-s.ctx.Done():
			return engine.Event{}, s.ctx.Err()
		case <-s.closed:
			return engine.Event{}, context.Canceled
		}
	}
	return a.event, a.err
}

func (s *fakeStream) Times() engine.Times { return s.times }

func (s *fakeStream) Await() { s.awaited = true }

func (s *fakeStream) Close() { s.once.Do(func() { close(s.closed) }) }

// answerActs returns the events of an answer to a prompt of so many tokens: one
// for each piece of text, then the end.
func answerActs(prompt int, pieces ...string) []act {
	var acts []act
	made := 0
	for _, p := range pieces {
		tokens := tokensOf(p)
		made += len(tokens)
		acts = append(acts, act{event: engine.Event{Text: p, Tokens: tokens, Usage: engine.Usage{Prompt: prompt, Completion: made}}})
	}
	end := engine.Event{Finish: engine.FinishStop, Tokens: []engine.Token{{ID: apitest.EOS, Logprob: -0.5}},
		Usage: engine.Usage{Prompt: prompt, Cached: 2, Completion: made + 1}}
	return append(acts, act{event: end})
}

// tokensOf returns a token for each byte, with itself and EOS as alternatives.
func tokensOf(text string) []engine.Token {
	var out []engine.Token
	for _, id := range (apitest.Tokenizer{}).Encode(text, true) {
		b := apitest.Tokenizer{}.Bytes(id)
		out = append(out, engine.Token{ID: id, Bytes: b, Logprob: -0.25, Top: []engine.Alternative{
			{ID: id, Bytes: b, Logprob: -0.25}, {ID: apitest.EOS, Logprob: -1.5},
		}})
	}
	return out
}

// fakeClock stands still; its tickers tick when the test sends on ticks.
type fakeClock struct {
	ticks chan time.Time

	mu        sync.Mutex
	intervals []time.Duration // of the tickers, in the order in which they were set
}

func newClock() *fakeClock { return &fakeClock{ticks: make(chan time.Time)} }

func (c *fakeClock) Now() time.Time { return time.Unix(1_700_000_000, 0) }

func (c *fakeClock) Ticker(d time.Duration) (<-chan time.Time, func(time.Duration), func()) {
	every := func(d time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.intervals = append(c.intervals, d)
	}
	every(d)
	return c.ticks, every, func() {}
}

// set returns the intervals of the tickers so far.
func (c *fakeClock) set() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.intervals)
}

// testConfig is a configuration with reproducible responses.
func testConfig(e Engine) Config {
	return Config{
		Engine: e, Tokenizer: apitest.Tokenizer{},
		Model:            Model{ID: "tiny", Aliases: []string{"deepseek-chat"}, Created: time.Unix(1_600_000_000, 0), ContextLength: 4096},
		StrictModelNames: true,
		Log:              slog.New(slog.DiscardHandler), Clock: newClock(), NewID: func() string { return "0123456789abcdef" },
	}
}

// numbered returns a Config.NewID that counts.
func numbered(format string) func() string {
	ids := 0
	return func() string { ids++; return fmt.Sprintf(format, ids) }
}

// answering is an engine that gives the same answer to every request.
func answering(pieces ...string) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) { return answerActs(len(r.Prompt), pieces...), nil }}
}

// rejecting is an engine that rejects every request.
func rejecting(err error) *fakeEngine {
	return &fakeEngine{script: func(int, engine.Request) ([]act, error) { return nil, err }}
}

// call sends one request to a handler.
func call(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// golden compares got with testdata/golden/NAME; with -update it writes the file
// first.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to create it")
	require.Equal(t, string(want), got)
}
