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

// Tracer is told what became of requests.
type Tracer interface {
	// Request takes the trace of a request that has been answered. It must not block and
	// must not keep Header. It is called for requests that were authorized, to routes
	// that cost something. It returns the id of the trace, "" if it is not recorded.
	Request(t *Trace) (id string)
}

// Trace is what is known of a request when it has been answered: times and counts, and
// nothing that a client wrote.
type Trace struct {
	Header   http.Header // of the request, which may name the trace that it belongs to
	ID       string      // the server's
	ClientID string      // what clientID allows of the client's; "" for none
	Method   string
	Route    string
	Began    time.Time
	Ended    time.Time
	Status   int
	Code     string // of the error that ended it, "" for none

	// Of a request for an answer; else Dialect is "".
	Dialect  string // openai, responses, anthropic or ollama
	Model    string // the server's name of it
	Streamed bool
	Parsing  Interval      // rendering and tokenizing the prompt, and making the grammar
	Grammar  Interval      // of Parsing: making the grammar of the answer; zero if none had to be made
	Refused  bool          // the grammar could not be made
	Answers  []run.Outcome // none if the request was refused
}

// Interval is a part of the time of a request; zero: there was none.
type Interval struct{ Began, Ended time.Time }

// traceKey is the key of the *Trace in the context of a request, and in that of gin.
const traceKey traceKeyType = "api.trace"

type traceKeyType string

// errorCode is the context key of the code of the error that ends a request.
const errorCode = "api.error"

// trace begins the trace of a request, if anybody wants it.
func (s *server) trace(c *gin.Context, id string, began time.Time) {
	if s.Traces == nil {
		return
	}
	t := &Trace{Header: c.Request.Header, ID: id, ClientID: clientID(c.Request.Header), Method: loggedMethod(c.Request), Began: began}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), traceKey, t))
}

// traced ends the trace of a request. Who has no key makes none, and neither do pages,
// health, metrics and what does not exist: so strangers cannot crowd out the others. It
// returns what the request's line in the log says of it.
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

// traceOf is the trace of the request with a context, nil if there is none.
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

// dialectOf names the API of a route for answers.
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
