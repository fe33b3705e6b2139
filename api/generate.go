package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/anthropic"
	"ringmaster/api/internal/ollama"
	"ringmaster/api/internal/openai"
	"ringmaster/api/run"
)

// generate handles an endpoint that answers with generated text, in any dialect: it reads
// and parses the body, runs the job and renders its events.
func (s *server) generate(parse dialect.Parse) gin.HandlerFunc {
	return s.withBody(func(c *gin.Context, f *body) {
		// The place is taken before the prompt is rendered and tokenized and grammars are
		// made, because that work needs a bound too.
		leave, err := s.Engine.Admit(s.tenant(c))
		if err != nil {
			s.fail(c, s.engineError(err))
			return
		}
		defer leave()
		if failed := s.tokensLeft(c); failed != nil {
			s.fail(c, failed)
			return
		}
		t := traceOf(c.Request.Context())
		if t != nil {
			t.Dialect, t.Model, t.Parsing.Began = dialectOf(c.FullPath()), s.Model.ID, s.Clock.Now()
		}
		call, failed := parse(s.service, f.Fields)
		if t != nil {
			t.Parsing.Ended = s.Clock.Now()
		}
		if failed != nil {
			s.failRun(c, nil, failed)
			return
		}
		c.Set(leftOutKey, takeLeftOut(call))
		if call.Now != nil {
			s.writeJSON(c, http.StatusOK, call.Now)
			return
		}
		group, marked := dialect.Hints(f.Fields)
		for i := range call.Job.Requests {
			r := &call.Job.Requests[i]
			r.CacheScope, r.Tenant, r.Weight = s.scope(c), s.tenant(c), weight(c)
			r.CacheGroup, r.CacheMarked = group, marked
		}
		ctx := c.Request.Context()
		prompt := 0
		for i := range call.Job.Requests {
			prompt += len(call.Job.Requests[i].Prompt)
		}
		leave()
		run, err := s.runner.Start(ctx, &call.Job)
		if err != nil {
			s.failRun(c, nil, err)
			return
		}
		s.use(c, prompt) // now, so that it counts for requests that come while this one runs
		defer s.account(c, run)
		if t != nil {
			t.Streamed = call.Stream
			defer func() { t.Answers = run.Outcomes() }()
		}
		defer run.Close()
		f.release() // the answer may take long and does not need the body
		s.answer(ctx, c, call, run)
	})
}

// account counts what an ended run has used, and keeps it for the audit.
func (s *server) account(c *gin.Context, running *run.Run) {
	u := &used{}
	for _, a := range running.Usage() {
		u.prompt += a.Prompt
		u.cached += a.Cached
		u.completion += a.Completion
	}
	s.use(c, u.completion)
	c.Set(usedKey, u)
}

// firstTick is after how many times Config.KeepAlive a stream has its first comment: what
// fails before that has a status, such as 503, by which clients try again.
const firstTick = 5

// answer renders the events of a run.
func (s *server) answer(ctx context.Context, c *gin.Context, call *dialect.Call, running *run.Run) {
	call.Job = run.Job{} // the engine has the prompts
	out := dialect.NewWriter(c.Writer)
	reply := call.Reply(out)
	var ticks <-chan time.Time
	var every func(time.Duration)
	if call.Stream {
		var stop func()
		ticks, every, stop = s.Clock.Ticker(firstTick * s.KeepAlive)
		defer stop()
	}
	event := func(e *run.Event) error {
		reply.Event(e)
		return out.Err()
	}
	tick := func() error {
		every(s.KeepAlive)
		reply.Tick(s.waits())
		return out.Err()
	}
	err := running.Each(ctx, event, ticks, tick)
	if err == nil {
		reply.End(running.Usage())
		err = out.Err()
	}
	if err != nil {
		s.failRun(c, out, err)
	}
}

// waits returns why answers wait for a model that recovers, "" if it does not. Every
// client sees it, so it names no rank.
func (s *server) waits() string {
	reading, yes := s.Engine.Recovering()
	switch {
	case !yes:
		return ""
	case reading <= 0:
		return "recovering: the ranks re-form the group; the answer continues afterwards"
	}
	reading = (reading + time.Second - 1).Truncate(time.Second)
	return fmt.Sprintf("recovering: the ranks re-form the group and read weights for up to %v; the answer continues afterwards", reading)
}

// failRun ends a request that failed with err before, in or after its generation: with an
// error response, or with an error event if a stream has begun. out is nil if there is no
// answer yet.
func (s *server) failRun(c *gin.Context, out *dialect.Writer, err error) {
	ctx := c.Request.Context()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var shutdown *Error
	if ctx.Err() != nil && !errors.As(err, &shutdown) {
		if out == nil || !out.Started {
			s.fail(c, dialect.ErrCancelled) // otherwise net/http would answer 200
		}
		c.Set(outcome, dialect.StatusClientClosed)
		c.Set(errorCode, "client_closed_request")
		return
	}
	if out != nil && out.Err() != nil {
		c.Set(outcome, dialect.StatusClientClosed)
		c.Set(errorCode, "client_closed_request")
		return
	}
	e := s.engineError(err)
	// Before the answer has begun only unknown errors are logged, because clients try
	// again and again while a group is down.
	if e.Status == http.StatusInternalServerError || out != nil && e.Status >= 500 {
		s.Log.Error("generation failed", "route", c.FullPath(), "error", err)
	}
	if out == nil || !out.Started {
		s.fail(c, e)
		return
	}
	c.Set(outcome, e.Status)
	c.Set(errorCode, e.Code)
	if out.Fail != nil {
		out.Fail(e)
		return
	}
	errorsOf(c.Request).Stream(out, e)
}

// fail responds with an error, in the form of the request's dialect, and stops the
// handler chain.
func (s *server) fail(c *gin.Context, e *Error) {
	hurryBody(c)
	c.Set(errorCode, e.Code)
	if e.RetryAfter > 0 {
		seconds := int64((e.RetryAfter + time.Second - 1) / time.Second)
		c.Header("Retry-After", strconv.FormatInt(seconds, 10))
	}
	forms := errorsOf(c.Request)
	s.writeJSON(c, forms.StatusOf(e), forms.Body(e))
	c.Abort()
}

// errorsOf returns how errors of a request are written. Only the path decides, because an
// error may come before anything else of the request is known.
func errorsOf(r *http.Request) *dialect.Errors {
	for _, d := range errorForms {
		if strings.HasPrefix(r.URL.Path, d.prefix) {
			return d.errors
		}
	}
	return &openai.Errors
}

// errorForms maps the prefixes of paths to the dialects.
var errorForms = []struct {
	prefix string
	errors *dialect.Errors
}{
	{"/v1/messages", &anthropic.Errors},
	{"/api/", &ollama.Errors},
}

// engineError translates an error for the client.
func (s *server) engineError(err error) *Error { return dialect.EngineError(err, s.RetryAfter) }

// writeJSON responds with a JSON value.
func (s *server) writeJSON(c *gin.Context, status int, v any) {
	c.Data(status, "application/json; charset=utf-8", append(dialect.Marshal(v), '\n'))
}
