// Package agents runs the true programs of coding agents against a server: the real
// api, engine, chat formats and constraints over a scripted model. The agent is asked
// to write files; the model calls the tool for it; the files must be there with the
// right content, and the agent must show the model's last words. Or the call is cut
// short, or the agent interrupted, and there must be no file.
package agents

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

const apiKey = "sk-test"

// server is a server and what it was asked.
type server struct {
	url string // without a path

	mu       sync.Mutex
	requests []string // method, path and status of each that was answered
	sent     []sent   // the bodies of all
	open     int      // requests under way
	idle     *sync.Cond
}

// start runs a server for the test.
func start(t *testing.T, p *play) *server {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: p.say, OnForward: p.forward, ContextLength: p.context})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	handler := api.New(api.Config{
		Engine: api.FromEngine(e), Tokenizer: apitest.Tokenizer{}, Model: api.Model{ID: "scripted", ContextLength: p.context},
		APIKeys: []string{apiKey}, Hosts: api.LoopbackHosts(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	out := &server{}
	out.idle = sync.NewCond(&out.mu)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	out.url = "http://" + l.Addr().String()
	s := api.NewServer(out.watch(handler), api.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
	})
	return out
}

// watch keeps what is asked and answered.
func (s *server) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		status := &statusWriter{ResponseWriter: w}
		s.mu.Lock()
		s.open++
		s.sent = append(s.sent, sent{r.URL.RequestURI(), body})
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.open--
			s.requests = append(s.requests, fmt.Sprint(r.Method, " ", r.URL.Path, " ", status.code))
			s.idle.Broadcast()
		}()
		next.ServeHTTP(status, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// asked reports whether a request had a path and a status.
func (s *server) asked(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.requests, line)
}

// quiet waits until no request is under way; the test's own deadline bounds it.
func (s *server) quiet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open > 0 {
		s.idle.Wait()
	}
}
