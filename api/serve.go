package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/distributed/accept"
)

// ServerOptions limits connections; zero values stand for the defaults.
type ServerOptions struct {
	ReadHeaderTimeout time.Duration // default 10 s
	IdleTimeout       time.Duration // default 2 min
	MaxHeaderBytes    int           // default 64 KiB
	// MaxConnections limits all connections, MaxPerAddress those of one address (with
	// IPv6, of a /64 network). Defaults: DefaultConnections and half of MaxConnections.
	MaxConnections, MaxPerAddress int
	Certificate                   *Certificate // of a server that speaks TLS; nil: it does not
	Log                           *slog.Logger // for connection errors; nil: slog.Default()
}

// Server serves a handler until Shutdown.
type Server struct {
	http   http.Server
	cancel context.CancelCauseFunc // of the context of every request
	conns  *connections
	forced atomic.Bool // the grace period of the shutdown has ended
	tls    *Certificate
	errors connectionErrors
}

// DefaultConnections returns the default of ServerOptions.MaxConnections: 512, or half of
// the files that the process may open. The other half is for the model, the other ranks
// and strangers on their ports.
func DefaultConnections() int { return max(2, min(512, accept.FileLimit()/2)) }

// connKey is the context key of a request's connection.
type connKey struct{}

// expired is a deadline in the past.
var expired = time.Unix(1, 0)

// errShutdown is sent to clients with requests still in progress at the end of the grace
// period.
var errShutdown = &Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "The server is shutting down."}

// NewServer returns a server for a handler, usually that of New. A whole response has no
// timeout, because a stream may be long: New's handler limits each write instead.
func NewServer(handler http.Handler, o ServerOptions) *Server {
	setDefault(&o.ReadHeaderTimeout, 10*time.Second)
	setDefault(&o.IdleTimeout, 2*time.Minute)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	setDefault(&o.MaxConnections, DefaultConnections())
	setDefault(&o.MaxPerAddress, max(1, o.MaxConnections/2))
	setDefault(&o.Log, slog.Default())
	s := &Server{conns: newConnections(o.MaxConnections, o.MaxPerAddress, o.Log), tls: o.Certificate}
	s.errors.log = o.Log
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.http = http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn := r.Context().Value(connKey{}).(net.Conn)
			s.conns.begin(conn, func() {
				if s.forced.Load() {
					setFinalDeadlines(conn)
				}
			})
			handler.ServeHTTP(w, r)
		}),
		// net/http writes the end of a response after the handler has returned, so that
		// only the state of the connection shows when it is complete.
		ConnState: func(conn net.Conn, state http.ConnState) {
			if closed := state == http.StateClosed || state == http.StateHijacked; closed || state == http.StateIdle {
				s.conns.end(socket(conn), closed)
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, socket(conn))
		},
		ReadHeaderTimeout: o.ReadHeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		ErrorLog:          log.New(&s.errors, "", 0),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	return s
}

// socket returns the connection below TLS. The limits know this one, and closing it does
// not block.
func socket(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// Collectors returns the metrics of the server's connections.
func (s *Server) Collectors() []prometheus.Collector {
	list := s.conns.collectors()
	if s.tls != nil {
		list = append(append(list, s.tls.Collectors()...), s.errors.collector())
	}
	return list
}

// Serve accepts connections on l, within the limits, and closes it at the end. It returns
// nil after Shutdown, otherwise the error that ended it.
func (s *Server) Serve(l net.Listener) error {
	limited := &limitedListener{Listener: l, conns: s.conns, refusing: make(chan struct{}, mostRefusing), encrypted: s.tls != nil}
	var listener net.Listener = limited
	if s.tls != nil {
		listener = tls.NewListener(limited, s.tls.Config())
	}
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown accepts no more connections and waits for the requests in progress. If ctx
// ends first it cancels them, and their clients get an error that says so. It returns
// when no handler is running and everything they wrote has been sent, with ctx's error if
// responses were cut short. A handler that does not end with its context is left behind
// after finalTimeout; the error is an ErrStuck then.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.cancel(errShutdown)
	// The handlers see their contexts end and write at most one event each.
	s.forced.Store(true)
	if n := s.conns.drain(setFinalDeadlines, finalTimeout); n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d of them after %v", ErrStuck, n, finalTimeout))
	}
	return errors.Join(err, s.http.Close())
}

// ErrStuck is wrapped by the error of Shutdown if handlers still run.
var ErrStuck = errors.New("requests did not end with their connections")

// setFinalDeadlines makes a connection fail at once if it waits for a request body, and
// after finalWriteTimeout if its client does not read. A handler that sets a write
// deadline later overrides the second.
func setFinalDeadlines(conn net.Conn) {
	_ = conn.SetReadDeadline(expired)
	_ = conn.SetWriteDeadline(time.Now().Add(finalWriteTimeout))
}

// finalWriteTimeout bounds the writing of a response that is cut short.
const finalWriteTimeout = 5 * time.Second

// finalTimeout bounds all that a handler may still do after its context ends: its
// computation ends within a second, and then it writes.
const finalTimeout = finalWriteTimeout + time.Second
