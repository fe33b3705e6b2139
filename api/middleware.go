package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// statusGone is what logs and metrics call a request whose client went away.
// No client ever sees it.
const statusGone = 499

// outcome is the key of a status that differs from the one sent.
const outcome = "api.outcome"

// observe names the request, logs it and counts it. What is asked and answered
// is never logged.
func (s *server) observe(c *gin.Context) {
	id := "req_" + s.NewID()
	c.Header("X-Request-Id", id)
	start := s.Clock.Now()
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		status := c.Writer.Status()
		if v, ok := c.Get(outcome); ok {
			status = v.(int)
		}
		route := c.FullPath()
		if route == "" {
			route = "none" // a path of the client's choice must not become a label
		}
		took := s.Clock.Now().Sub(start)
		s.metrics.count(route, status, took)
		level := slog.LevelInfo
		switch {
		case status >= 500:
			level = slog.LevelError
		case route == "/healthz" || route == "/readyz" || route == "/metrics":
			level = slog.LevelDebug
		}
		s.Log.LogAttrs(context.WithoutCancel(c.Request.Context()), level, "request",
			slog.String("id", id), slog.String("method", c.Request.Method), slog.String("route", route),
			slog.Int("status", status), slog.Int("bytes", max(0, c.Writer.Size())),
			slog.Duration("took", took), slog.String("client", c.Request.RemoteAddr))
	}()
	c.Next()
}

// recover turns a panic of a handler into a 500, or, when the answer has
// begun, into a closed connection: the client must not take it for whole.
func (s *server) recover(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		s.Log.Error("a handler panicked", "route", c.FullPath(), "panic", v, "stack", string(debug.Stack()))
		c.Set(outcome, http.StatusInternalServerError)
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		s.fail(c, s.engineError(errors.New("panic")))
	}()
	c.Next()
}

// deadlines gives the request's body its time to arrive and each write to the
// client a time of its own. Sockets know the system's clock only, whatever
// Config.Clock is; a writer without deadlines (a recorder of a test) works
// without.
func (s *server) deadlines(c *gin.Context) {
	limitBody(c.Writer, c.Request, s.BodyTimeout)
	c.Writer = &deadlineWriter{ResponseWriter: c.Writer, timeout: s.WriteTimeout}
	c.Next()
}

// limitBody gives a request's body its time to arrive, whether a handler reads it
// or not: net/http waits for one that nobody reads.
func limitBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.ContentLength == 0 {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(timeout))
	if r.Context().Err() != nil { // Shutdown set its own before this one
		_ = rc.SetReadDeadline(past)
	}
}

// deadlineWriter sets the connection's write deadline before each write, so
// that a stream may last for hours but a client that reads no more cannot hold
// it.
type deadlineWriter struct {
	gin.ResponseWriter
	timeout time.Duration
}

func (w *deadlineWriter) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

func (w *deadlineWriter) WriteString(b string) (int, error) {
	w.extend()
	return w.ResponseWriter.WriteString(b)
}

// FlushError is what http.ResponseController calls; gin's own Flush drops the
// error.
func (w *deadlineWriter) FlushError() error {
	w.extend()
	w.WriteHeaderNow()
	if inner, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return http.NewResponseController(inner.Unwrap()).Flush()
	}
	w.Flush()
	return nil
}

// Unwrap is for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// broken ends a request whose answer came to a bad end. out is nil when the
// answer is not a stream.
func (s *server) broken(c *gin.Context, out *events, err error) {
	ctx := c.Request.Context()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var shutdown *Error
	if ctx.Err() != nil && !errors.As(err, &shutdown) {
		c.Set(outcome, statusGone)
		return
	}
	if out != nil && out.failed {
		c.Set(outcome, statusGone)
		return
	}
	e := s.engineError(err)
	if e.Status >= 500 {
		s.Log.Error("an answer failed", "route", c.FullPath(), "error", err)
	}
	if out == nil || !out.started {
		s.fail(c, e)
		return
	}
	c.Set(outcome, e.Status)
	_ = out.send(e.object()) // the stream ends either way
}

// LoopbackHosts are the names of a server that listens on a loopback address,
// and what is given beside them. It is a value for Config.Hosts.
func LoopbackHosts(more ...string) []string {
	return append([]string{"localhost", "127.0.0.1", "::1"}, more...)
}

// checkHost turns requests away that came by a name not ours.
func (s *server) checkHost(c *gin.Context) {
	if s.Hosts == nil {
		return
	}
	host := c.Request.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	for _, h := range s.Hosts {
		if strings.EqualFold(h, host) {
			return
		}
	}
	s.fail(c, &Error{Status: http.StatusForbidden, Code: "host_not_allowed",
		Message: "This server does not answer to the host name of the request; allow the name in its settings."})
}

// cors answers pages of the allowed origins.
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

// open lists what needs no key: nothing of it says or does anything of worth.
var open = []string{"/", "/healthz", "/readyz"}

// authorize asks for one of the keys.
func (s *server) authorize(c *gin.Context) {
	if len(s.keys) == 0 || slices.Contains(open, c.FullPath()) {
		return
	}
	scheme, key, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(key)))
	match := 0
	for i := range s.keys { // all of them, so that time tells nothing
		match |= subtle.ConstantTimeCompare(given[:], s.keys[i][:])
	}
	if match == 1 && strings.EqualFold(scheme, "Bearer") {
		return
	}
	message := "The API key is wrong."
	if key == "" {
		message = "An API key is needed: send it as \"Authorization: Bearer KEY\"."
	}
	c.Header("WWW-Authenticate", "Bearer")
	s.fail(c, &Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: message})
}

// hashKeys makes all keys the same length, so that comparing them takes the
// same time.
func hashKeys(keys []string) [][32]byte {
	var out [][32]byte
	for _, k := range keys {
		if k != "" { // an empty key would let everybody in
			out = append(out, sha256.Sum256([]byte(k)))
		}
	}
	return out
}
