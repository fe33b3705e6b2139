package api

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
)

var rewrite = flag.Bool("update", false, "write the golden files anew")

// act is one thing a fake stream does: wait, then give an event or an error.
type act struct {
	wait  <-chan struct{} // nil: at once
	event engine.Event
	err   error
}

// fakeEngine answers the i-th request with what play says.
type fakeEngine struct {
	play  func(i int, r engine.Request) ([]act, error)
	ready error

	mu       sync.Mutex
	requests []engine.Request
	streams  []*fakeStream
}

func (e *fakeEngine) Submit(ctx context.Context, r engine.Request) (Stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	acts, err := e.play(len(e.requests), r)
	e.requests = append(e.requests, r)
	if err != nil {
		return nil, err
	}
	s := &fakeStream{ctx: ctx, acts: acts, closed: make(chan struct{})}
	e.streams = append(e.streams, s)
	return s, nil
}

func (e *fakeEngine) Ready() error { return e.ready }

func (e *fakeEngine) Stats() engine.Stats {
	return engine.Stats{Queued: 3, Active: 2, Steps: 70}
}

// submitted are the requests so far.
func (e *fakeEngine) submitted() []engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]engine.Request(nil), e.requests...)
}

type fakeStream struct {
	ctx    context.Context // of Submit
	acts   []act
	once   sync.Once
	closed chan struct{}
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

func (s *fakeStream) Close() { s.once.Do(func() { close(s.closed) }) }

// says makes the events of an answer: one for each piece of text, then the end.
func says(prompt int, pieces ...string) []act {
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

// tokensOf is a token for each byte, each with itself and the end as the
// alternatives.
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

// fakeClock stands still; its tickers tick when the test says so.
type fakeClock struct {
	ticks chan time.Time
}

func newClock() *fakeClock { return &fakeClock{ticks: make(chan time.Time)} }

func (c *fakeClock) Now() time.Time { return time.Unix(1_700_000_000, 0) }

func (c *fakeClock) Ticker(time.Duration) (<-chan time.Time, func()) {
	return c.ticks, func() {}
}

// testConfig is a configuration that gives the same bytes each time.
func testConfig(e Engine) Config {
	return Config{
		Engine: e, Tokenizer: apitest.Tokenizer{},
		Model: Model{ID: "tiny", Aliases: []string{"deepseek-chat"}, Created: time.Unix(1_600_000_000, 0), ContextLength: 4096},
		Log:   slog.New(slog.DiscardHandler), Clock: newClock(), NewID: func() string { return "0123456789abcdef" },
	}
}

// say is an engine that gives the same answer to every request.
func say(pieces ...string) *fakeEngine {
	return &fakeEngine{play: func(_ int, r engine.Request) ([]act, error) { return says(len(r.Prompt), pieces...), nil }}
}

// refuse is an engine that takes nothing.
func refuse(err error) *fakeEngine {
	return &fakeEngine{play: func(int, engine.Request) ([]act, error) { return nil, err }}
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

// golden compares with testdata/golden/NAME, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make it")
	require.Equal(t, string(want), got)
}
