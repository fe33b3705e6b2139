package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// quietRoutes are logged at debug level because clients poll them.
var quietRoutes = []string{"/healthz", "/readyz", "/health", "/metrics", statusRoute, historyRoute, renderRoute, filesRoute}

// outcome is the context key of a status to log in place of the one that was sent.
const outcome = "api.outcome"

// longestClientID limits the id that a client gives its request, in bytes.
const longestClientID = 128

// clientID returns the id that the client, or a proxy, has given the request in
// X-Request-Id or X-Client-Request-Id; "" if there is none or it is not valid. An id has
// letters, digits and ._:- only, so that it cannot forge lines of a log.
func clientID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "X-Client-Request-Id"} {
		id := h.Get(name)
		if id == "" || len(id) > longestClientID {
			continue
		}
		if !strings.ContainsFunc(id, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._:-", r))
		}) {
			return id
		}
	}
	return ""
}

// loggedMethod returns the method of a request for logs, cut because a client could make
// it as long as its header.
func loggedMethod(r *http.Request) string { return r.Method[:min(len(r.Method), 20)] }

// observe gives the request an id, logs it and counts it. Prompts and answers are never
// logged. The id is the server's own, since clients may repeat theirs; the line has the
// client's beside it.
func (s *server) observe(c *gin.Context) {
	id := "req_" + s.NewID()
	c.Header("X-Request-Id", id)
	start := s.Clock.Now()
	s.trace(c, id, start)
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		status := c.Writer.Status()
		if v, ok := c.Get(outcome); ok {
			status = v.(int)
		}
		route := cmp.Or(c.FullPath(), "none") // a path that the client chose must not become a label
		end := s.Clock.Now()
		took := end.Sub(start)
		s.metrics.count(route, status, took)
		trace := s.traced(c, route, status, end)
		used := s.audit(c, id, route, status, took)
		level := slog.LevelInfo
		switch {
		case status >= 500 && status != http.StatusNotImplemented:
			level = slog.LevelError
		case slices.Contains(quietRoutes, route):
			level = slog.LevelDebug
		}
		left := slog.Group("")
		if l, ok := c.Value(leftOutKey).(*leftOut); ok {
			var least slog.Level
			left, least = l.logged()
			level = max(level, least)
		}
		s.Log.LogAttrs(context.WithoutCancel(c.Request.Context()), level, "request",
			slog.String("id", id), slog.String("method", loggedMethod(c.Request)), slog.String("route", route),
			slog.Int("status", status), slog.Int("bytes", max(0, c.Writer.Size())),
			slog.Duration("duration", took), slog.String("client", c.Request.RemoteAddr), used, left, trace)
	}()
	c.Next()
}

// recover turns a panic of a handler into a 500. If the response has begun it closes the
// connection instead, because the client must not mistake the response for a complete
// one. It logs the text of runtime panics only, since any other may quote what the client
// sent. The stack contains no strings.
func (s *server) recover(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		s.Log.Error("handler panicked", "route", c.FullPath(), "panic", describePanic(v), "stack", string(debug.Stack()))
		c.Set(outcome, http.StatusInternalServerError)
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		s.fail(c, s.engineError(errors.New("panic")))
	}()
	c.Next()
}

// describePanic returns what can be logged of a panic's value: its type, and the text of
// a runtime error, which holds indexes and types only.
func describePanic(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", v)
}

// LoopbackHosts returns the value of Config.Hosts for a server that listens on a loopback
// address: its usual names, and the given ones.
func LoopbackHosts(more ...string) []string {
	return append([]string{"localhost", "127.0.0.1", "::1"}, more...)
}

// checkHost rejects requests with a Host header that is not in Config.Hosts.
func (s *server) checkHost(c *gin.Context) {
	if hostAllowed(s.Hosts, c.Request.Host) {
		return
	}
	s.fail(c, errHost)
}

// errHost rejects a request because of its Host header.
var errHost = &Error{Status: http.StatusForbidden, Code: "host_not_allowed",
	Message: "The Host header of the request is not allowed; add the name to the server's allowed hosts (--allow-host)."}

// hostAllowed reports whether a Host header, with or without a port, is one of
// the allowed names; nil allows any.
func hostAllowed(allowed []string, host string) bool {
	if allowed == nil {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return slices.ContainsFunc(allowed, func(h string) bool { return strings.EqualFold(h, host) })
}

// cors sets the CORS headers for the allowed origins and answers preflights.
func (s *server) cors(c *gin.Context) {
	origin := c.GetHeader("Origin")
	if len(s.CORSOrigins) == 0 {
		return
	}
	h := c.Writer.Header()
	h.Add("Vary", "Origin")
	if origin == "" || !slices.Contains(s.CORSOrigins, "*") && !slices.Contains(s.CORSOrigins, origin) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", c.GetHeader("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
		c.AbortWithStatus(http.StatusNoContent)
	}
}
