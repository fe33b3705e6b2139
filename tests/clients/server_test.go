// Package clients tests the server with the clients that people use: the official
// npm packages openai, @anthropic-ai/sdk and ollama, OpenAI's Agents SDK, LangChain, Vercel's ai with
// its providers, and for Go openai-go, langchaingo and Ollama's own. With each of them the tests chat, stream, count tokens, provoke errors and
// disconnect.
//
// The server is the real api and engine over a scripted model: the first word of a
// question selects the answer (see play).
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

// play returns the answer of the model to a prompt, starting with reasoning if the
// prompt requests it.
func play(history []int32) string {
	answer := "Hello, wörld! 🎪"
	if strings.Contains(question(history), "capital") {
		answer = "Paris."
	}
	if strings.Contains(question(history), "salute") {
		answer = `{"greeting": "Hi"}`
	}
	if strings.Contains(question(history), "weather") {
		if answer = call; strings.Contains(question(history), "<tool_result>") {
			answer = "22 degrees."
		}
	}
	if history[len(history)-1] == apitest.Think {
		return "Let me think.</think>" + answer
	}
	return answer
}

// call is an answer that calls a tool.
const call = "I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"place\" string=\"true\">Paris \"<x>\"</｜DSML｜parameter>\n" +
	"<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"

// question returns the text after the last user token.
func question(prompt []int32) string {
	if i := slices.Index(prompt, apitest.User); i >= 0 {
		prompt = prompt[i:]
	}
	return apitest.Tokenizer{}.Decode(prompt)
}

// troublesome is an engine with faults on demand: a question that begins with "busy"
// is rejected, one with "break" fails after its first token, one with "hold" waits
// there until it is cancelled.
type troublesome struct {
	api.Engine
	gone chan struct{} // one mark for each held answer that was given up
}

func (e *troublesome) SubmitAll(ctx context.Context, requests []engine.Request) ([]api.Stream, error) {
	q := question(requests[0].Prompt) // all have the same
	if strings.HasPrefix(q, "busy") {
		return nil, fmt.Errorf("%w: on demand", engine.ErrBusy)
	}
	streams, err := e.Engine.SubmitAll(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, s := range streams {
		switch {
		case strings.HasPrefix(q, "break"):
			streams[i] = &trouble{Stream: s}
		case strings.HasPrefix(q, "hold"):
			streams[i] = &trouble{Stream: s, gone: e.gone}
		}
	}
	return streams, nil
}

// trouble is a stream that fails after its first text.
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
		Hosts: api.LoopbackHosts(), Log: slog.New(slog.DiscardHandler), StrictModelNames: true,
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
