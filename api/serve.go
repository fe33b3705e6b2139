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

// ServerOptions limits connections; zero values stand for the defaults.
type ServerOptions struct {
	ReadHeaderTimeout time.Duration // default 10 s
	IdleTimeout       time.Duration // default 2 min
	MaxHeaderBytes    int           // default 64 KiB
	Log               *slog.Logger  // for connection errors; nil: slog.Default()
}

// Server serves a handler until Shutdown.
type Server struct {
	http   http.Server
	cancel context.CancelCauseFunc // of the context of every request

	mu     sync.Mutex
	active map[net.Conn]bool // connections whose handler runs or whose response is not fully written
	idle   sync.Cond         // active has become empty
	forced bool              // the grace period of the shutdown is over
}

// connKey is the context key of a request's connection.
type connKey struct{}

// expired is a deadline in the past.
var expired = time.Unix(1, 0)

// errShutdown is sent to clients whose requests were still in progress at the
// end of the grace period.
var errShutdown = &Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "The server is shutting down."}

// NewServer returns a server for a handler, usually that of New. There is no
// timeout for a whole response, because a stream may be long: New's handler
// limits each write instead.
func NewServer(handler http.Handler, o ServerOptions) *Server {
	setDefault(&o.ReadHeaderTimeout, 10*time.Second)
	setDefault(&o.IdleTimeout, 2*time.Minute)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{active: map[net.Conn]bool{}}
	s.idle.L = &s.mu
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.http = http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.setActive(r.Context().Value(connKey{}).(net.Conn))
			handler.ServeHTTP(w, r)
		}),
		// net/http writes the end of a response after the handler has returned,
		// so only the state of the connection shows when it is complete.
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateIdle || state == http.StateClosed || state == http.StateHijacked {
				s.setIdle(conn)
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

// Serve accepts connections on l and closes it at the end. It returns nil after
// Shutdown, else the error that ended it.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown accepts no more connections and waits for the requests in progress.
// If ctx ends first they are cancelled, and their clients get an error that says
// so. It returns when no handler is running and everything they wrote has been
// sent, with ctx's error if responses had to be cut short.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.cancel(errShutdown)
	// The handlers see their contexts end and write at most one event each.
	s.mu.Lock()
	s.forced = true
	for conn := range s.active {
		setFinalDeadlines(conn)
	}
	for len(s.active) > 0 {
		s.idle.Wait()
	}
	s.mu.Unlock()
	return errors.Join(err, s.http.Close())
}

// setFinalDeadlines makes a connection fail at once if it waits for a request
// body, and after finalWriteTimeout if its client does not read. A handler that
// sets a write deadline later overrides the second.
func setFinalDeadlines(conn net.Conn) {
	_ = conn.SetReadDeadline(expired)
	_ = conn.SetWriteDeadline(time.Now().Add(finalWriteTimeout))
}

// finalWriteTimeout bounds the writing of a response that is cut short.
const finalWriteTimeout = 5 * time.Second

// setActive notes that a handler is about to run for the connection.
func (s *Server) setActive(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[conn] = true
	if s.forced {
		setFinalDeadlines(conn)
	}
}

// setIdle notes that the connection's response is complete or cannot be sent.
func (s *Server) setIdle(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.active, conn); len(s.active) == 0 {
		s.idle.Broadcast()
	}
}
