package pages

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

const contextLength = 1 << 20

// server serves the scripted model. A test can kill and start its HTTP server, and hold
// the steps of the model.
type server struct {
	t       *testing.T
	handler http.Handler
	address string

	http   *api.Server
	conns  *killable
	served chan error // closed after the result of Serve

	requests atomic.Int64 // that are served now

	mu   sync.Mutex
	pass int           // steps that may run; < 0: all
	more chan struct{} // closed when pass changes
}

// newServer starts a server with one API key, or none.
func newServer(t *testing.T, key string) *server {
	s := &server{t: t, address: "127.0.0.1:0", pass: -1, more: make(chan struct{})}
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: say, ContextLength: contextLength, OnForward: s.step})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	config := api.Config{
		Engine: api.FromEngine(e), Tokenizer: apitest.Tokenizer{}, Model: api.Model{ID: "scripted", ContextLength: contextLength},
		Hosts: api.LoopbackHosts(), Log: slog.New(slog.DiscardHandler), KeepAlive: 100 * time.Millisecond,
	}
	if key != "" {
		config.APIKeys = []string{key}
	}
	h := api.New(config)
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Add(-1)
		h.ServeHTTP(w, r)
	})
	s.start()
	t.Cleanup(func() {
		s.hold(-1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.http.Shutdown(ctx))
		require.NoError(t, <-s.served)
		require.NoError(t, e.Close(ctx))
		require.Empty(t, m.Violations())
	})
	return s
}

// start serves at the address of before.
func (s *server) start() {
	l, err := net.Listen("tcp", s.address)
	require.NoError(s.t, err)
	s.address = l.Addr().String()
	s.http, s.conns, s.served = api.NewServer(s.handler, api.ServerOptions{}), &killable{Listener: l}, make(chan error, 1)
	go func(h *api.Server, l net.Listener, served chan error) {
		served <- h.Serve(l)
		close(served) // a script may fail after kill, which has received the result
	}(s.http, s.conns, s.served)
}

// kill closes the listener and all connections, as the end of the process would.
func (s *server) kill() {
	s.conns.kill()
	<-s.served
}

// hold lets some more steps of the model run, and then none; < 0: all.
func (s *server) hold(steps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = steps
	close(s.more)
	s.more = make(chan struct{})
}

// step is enginetest.Options.OnForward.
func (s *server) step(ctx context.Context, _ model.Step) error {
	for {
		s.mu.Lock()
		pass, more := s.pass, s.more
		if pass > 0 {
			s.pass--
		}
		s.mu.Unlock()
		if pass != 0 {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killable closes its connections too.
type killable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

// Accept implements net.Listener.
func (k *killable) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.mu.Lock()
		k.conns = append(k.conns, c)
		k.mu.Unlock()
	}
	return c, err
}

func (k *killable) kill() {
	_ = k.Listener.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
}
