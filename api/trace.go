package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/run"
)

// Tracer receives the traces of requests.
type Tracer interface {
	// Request takes the trace of a request after its answer. It must not block and must
	// not keep Header. It is called only for authorized requests to routes that cost
	// something. It returns the id of the trace, "" if it is not recorded.
	Request(t *Trace) (id string)
}

// Trace is what is known about a request after its answer: times and counts, and nothing
// that a client wrote.
type Trace struct {
	Header   http.Header // of the request; it may name the parent trace
	ID       string      // the server's
	ClientID string      // the client's, if clientID allows it; otherwise ""
	Method   string
	Route    string
	Began    time.Time
	Ended    time.Time
	Status   int
	Code     string // of the error that ended the request, "" for none

	// Set if the request asked for an answer; otherwise Dialect is "".
	Dialect  string // openai, responses, anthropic or ollama
	Model    string // the server's name
	Streamed bool
	Parsing  Interval      // rendering and tokenizing the prompt, and making the grammar
	Grammar  Interval      // part of Parsing; zero if no grammar had to be made
	Refused  bool          // the grammar could not be made
	Answers  []run.Outcome // none if the request was refused
}

// Interval is a part of the time of a request; zero: there was none.
type Interval struct{ Began, Ended time.Time }

// traceKey is the key of the *Trace in the context of a request, and in gin's.
const traceKey traceKeyType = "api.trace"

type traceKeyType string

// errorCode is the context key of the code of the error that ends a request.
const errorCode = "api.error"

// trace begins the trace of a request if Config.Traces is set.
func (s *server) trace(c *gin.Context, id string, began time.Time) {
	if s.Traces == nil {
		return
	}
	t := &Trace{Header: c.Request.Header, ID: id, ClientID: clientID(c.Request.Header), Method: loggedMethod(c.Request), Began: began}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), traceKey, t))
}

// traced ends the trace of a request and returns the attribute for the request's line in
// the log. Requests without a key, pages, health, metrics and unknown paths make no
// trace, so that strangers cannot crowd out the others.
func (s *server) traced(c *gin.Context, route string, status int, ended time.Time) slog.Attr {
	t := traceOf(c.Request.Context())
	if t == nil || route == "none" || slices.Contains(quietRoutes, route) || slices.Contains(publicRoutes, route) ||
		status == http.StatusUnauthorized || status == http.StatusForbidden {
		return slog.Attr{}
	}
	t.Route, t.Status, t.Ended, t.Code = route, status, ended, c.GetString(errorCode)
	if id := s.Traces.Request(t); id != "" {
		return slog.String("trace", id)
	}
	return slog.Attr{}
}

// traceOf returns the trace of the request with a context, nil if it has none.
func traceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey).(*Trace)
	return t
}

// madeGrammar is dialect.Grammars.Made. It runs while the request is being parsed, on
// the same goroutine.
func (s *server) madeGrammar(ctx context.Context, began time.Time, failed bool) {
	if t := traceOf(ctx); t != nil {
		t.Grammar, t.Refused = Interval{began, s.Clock.Now()}, failed
	}
}

// dialectOf returns the API of a route for answers.
func dialectOf(route string) string {
	switch {
	case strings.HasPrefix(route, "/v1/messages"):
		return "anthropic"
	case strings.HasPrefix(route, "/v1/responses"):
		return "responses"
	case strings.HasPrefix(route, "/api/"):
		return "ollama"
	}
	return "openai"
}
