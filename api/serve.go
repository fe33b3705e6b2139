package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServerOptions are the limits of connections; zero values stand for the
// defaults.
type ServerOptions struct {
	ReadHeaderTimeout time.Duration // default 10 s
	IdleTimeout       time.Duration // default 2 min
	MaxHeaderBytes    int           // default 64 KiB
	Log               *slog.Logger  // of the connections' errors; nil: slog.Default()
}

// Server serves a handler until it is told to end.
type Server struct {
	http   http.Server
	cancel context.CancelCauseFunc // of the context of every request

	mu        sync.Mutex
	answering map[net.Conn]bool // connections whose handler runs or whose answer is not all written
	idle      sync.Cond         // answering has become empty
	cut       bool              // the time for answers under way is over
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// errShutdown reaches clients whose answers were still under way when the time
// for a graceful end was over.
var errShutdown = &Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "The server is shutting down."}

// NewServer makes a server for a handler, usually that of New. There is no
// timeout for a whole response, because a stream may be long: New's handler
// limits each write instead.
func NewServer(handler http.Handler, o ServerOptions) *Server {
	orInt(&o.ReadHeaderTimeout, 10*time.Second)
	orInt(&o.IdleTimeout, 2*time.Minute)
	orInt(&o.MaxHeaderBytes, 64<<10)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{answering: map[net.Conn]bool{}}
	s.idle.L = &s.mu
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.http = http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.enter(r.Context().Value(connKey{}).(net.Conn))
			handler.ServeHTTP(w, r)
		}),
		// net/http writes the end of an answer after the handler has returned,
		// so the state of the connection says when it is out.
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateIdle || state == http.StateClosed || state == http.StateHijacked {
				s.leave(conn)
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		ReadHeaderTimeout: o.ReadHeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	return s
}

// Serve accepts connections on l, which it closes at the end. It gives nil
// after Shutdown, else the error that ended it.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown accepts no more connections and waits for the requests under way.
// When ctx ends first they are cancelled: their clients get an error that says
// so. It returns when no handler runs any more and what they wrote is sent, with
// ctx's error if answers had to be cut short.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.cancel(errShutdown)
	// The handlers see their contexts end and write at most one event each.
	s.mu.Lock()
	s.cut = true
	for conn := range s.answering {
		hurry(conn)
	}
	for len(s.answering) > 0 {
		s.idle.Wait()
	}
	s.mu.Unlock()
	return errors.Join(err, s.http.Close())
}

// hurry bounds what a connection may still wait for: no body that has not come,
// and a client that does not read for no longer than lastWrites. A handler that
// sets a write deadline after this has that one.
func hurry(conn net.Conn) {
	_ = conn.SetReadDeadline(past)
	_ = conn.SetWriteDeadline(time.Now().Add(lastWrites))
}

// lastWrites is the time for the end of an answer that is cut short.
const lastWrites = 5 * time.Second

func (s *Server) enter(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering[conn] = true
	if s.cut {
		hurry(conn)
	}
}

func (s *Server) leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.answering, conn); len(s.answering) == 0 {
		s.idle.Broadcast()
	}
}
