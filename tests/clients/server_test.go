// Package clients holds the server against the clients that people use: the
// official npm package openai, Vercel's ai with @ai-sdk/openai-compatible, and
// Go's openai-go. Each is asked to chat, stream, count, fail and hang up.
//
// The server is the true api and engine over a model that says what the test
// wants. The word a question begins with chooses: see play.
package clients

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

const (
	modelID = "scripted"
	apiKey  = "sk-test"
)

// play is what the model says to a prompt: its reasoning first, if the prompt
// asks for it.
func play(history []int32) string {
	answer := "Hello, wörld! 🎪"
	if strings.Contains(question(history), "capital") {
		answer = "Paris."
	}
	if history[len(history)-1] == apitest.Think {
		return "Let me think.</think>" + answer
	}
	return answer
}

// question is the text after the last user marker.
func question(prompt []int32) string {
	if i := slices.Index(prompt, apitest.User); i >= 0 {
		prompt = prompt[i:]
	}
	return apitest.Tokenizer{}.Decode(prompt)
}

// troublesome is an engine that does on demand what a client must survive: a
// question that begins with "busy" is refused, one with "break" fails after
// its first token, one with "hold" waits there until it is given up.
type troublesome struct {
	api.Engine
	gone chan struct{} // one mark for each held answer that was given up
}

func (e *troublesome) Submit(ctx context.Context, r engine.Request) (api.Stream, error) {
	q := question(r.Prompt)
	if strings.HasPrefix(q, "busy") {
		return nil, fmt.Errorf("%w: on demand", engine.ErrBusy)
	}
	s, err := e.Engine.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(q, "break"):
		return &trouble{Stream: s}, nil
	case strings.HasPrefix(q, "hold"):
		return &trouble{Stream: s, gone: e.gone}, nil
	}
	return s, nil
}

// trouble is a stream that goes wrong after its first text.
type trouble struct {
	api.Stream
	begun bool
	gone  chan struct{} // nil: fail; else wait and leave a mark
}

func (s *trouble) Next(ctx context.Context) (engine.Event, error) {
	if !s.begun {
		e, err := s.Stream.Next(ctx)
		s.begun = e.Text != ""
		return e, err
	}
	if s.gone == nil {
		return engine.Event{}, fmt.Errorf("%w: on demand", engine.ErrFailed)
	}
	<-ctx.Done()
	s.gone <- struct{}{}
	return engine.Event{}, ctx.Err()
}

// start runs a server for the test; url ends with /v1.
func start(t *testing.T) (url string, gone <-chan struct{}) {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: play})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	marks := make(chan struct{}, 16)
	handler := api.New(api.Config{
		Engine: &troublesome{api.FromEngine(e), marks}, Tokenizer: apitest.Tokenizer{},
		Model: api.Model{ID: modelID, ContextLength: 4096}, APIKeys: []string{apiKey},
		Hosts: api.LoopbackHosts(), Log: slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := api.NewServer(handler, api.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
	})
	return "http://" + l.Addr().String() + "/v1", marks
}
