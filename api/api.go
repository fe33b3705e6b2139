// Package api serves an engine over HTTP in the APIs that clients speak, plus tokenize,
// detokenize, health, metrics and the pages of package web. It handles requests and token
// ids and knows nothing about tensors.
//
// New returns the http.Handler, and NewServer wraps it in a server with timeouts and a
// graceful shutdown. This package owns the limits, the keys and the metrics; package run
// owns the generation loop, and each dialect (such as package openai) parses its requests
// and renders the events.
package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/anthropic"
	"ringmaster/api/internal/openai"
	"ringmaster/api/internal/responses"
	"ringmaster/api/keys"
	"ringmaster/api/run"
	"ringmaster/api/web"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Stream is one completion in progress.
type Stream = run.Stream

// Tokenizer is the part of a vocabulary that the handlers use.
type Tokenizer = dialect.Tokenizer

// Model describes the served model to clients.
type Model = dialect.Model

// Engine is the part of an engine that the handlers use. FromEngine adapts an
// *engine.Engine.
type Engine interface {
	run.Engine
	// Admit reserves a place in the queue for a request of a tenant until release is
	// called, or returns an error that wraps engine.ErrBusy.
	Admit(tenant string) (release func(), err error)
	// Ready returns nil if the engine can produce tokens now, otherwise the reason why
	// not.
	Ready() error
	// Recovering reports whether answers wait because the model recovers, and how long
	// reading weights may take (0 if that is not known).
	Recovering() (reading time.Duration, yes bool)
	// Stats returns the engine's current counters, for /metrics.
	Stats() engine.Stats
}

// FromEngine adapts e to the interface.
func FromEngine(e *engine.Engine) Engine { return realEngine{e} }

// realEngine changes the result type of SubmitAll to the interface.
type realEngine struct{ *engine.Engine }

func (e realEngine) SubmitAll(ctx context.Context, requests []engine.Request) ([]Stream, error) {
	list, err := e.Engine.SubmitAll(ctx, requests)
	if err != nil {
		return nil, err
	}
	streams := make([]Stream, len(list))
	for i, s := range list {
		streams[i] = s
	}
	return streams, nil
}

// Config configures a handler. Engine, Tokenizer and Model.ID are required; the zero
// value of every other field selects its default.
type Config struct {
	Engine    Engine
	Tokenizer Tokenizer
	Model     Model

	// Keys are the accepted keys; a request must carry one of them as
	// "Authorization: Bearer KEY". nil: no key is required. The pages, /healthz,
	// /readyz and /health never require one.
	Keys *keys.Ring
	// APIKeys are the accepted keys if Keys is nil. None: no key is required. An empty
	// key is never accepted, so a list of empty keys refuses every request.
	APIKeys []string
	// CORSOrigins lists the origins that pages may call from; "*" allows any. Empty: no
	// CORS header is ever sent.
	CORSOrigins []string
	// Hosts lists the names that a request's Host header may have (without port). nil:
	// any. A server on a loopback address should set it to LoopbackHosts() because of DNS
	// rebinding: a web page can point its own name at 127.0.0.1.
	Hosts []string

	MaxBody int64 // largest request body in bytes; 0: 32 MiB
	// BodyBudget limits the bytes of all bodies that are being received, parsed and
	// tokenized at the same time; the request that exceeds it gets a 429. 0: 64 MiB. At
	// least MaxBody.
	BodyBudget int64
	// MaxTexts limits the concurrent requests to /tokenize and /detokenize; one more gets
	// a 429. 0: 72, as many as an engine has places by default.
	MaxTexts    int
	MaxChoices  int // largest n of a request; 0: 8
	MaxPrompts  int // most prompts in one text completion request; 0: 64
	MaxMessages int // most messages in a conversation; 0: 8192
	// MaxGrammars limits the bytes of the cached grammars of constraints; 0:
	// dialect.DefaultGrammars.
	MaxGrammars int64
	// Replays holds the sampled tokens of answers with tool calls; nil: a new one of
	// run.DefaultReplays bytes, which a restart loses.
	Replays *run.Replays

	// StrictModelNames refuses requests for a model with a name other than those of
	// Model; otherwise any name selects the model.
	StrictModelNames bool

	// KeepAlive is how long a stream may be silent before it sends a comment, so that
	// clients and proxies do not time out during a long prefill and pages show its
	// progress; 0: 2 s. The first comment comes after five times as long.
	KeepAlive time.Duration
	// WriteTimeout limits one write to a client; 0: 30 s. It restarts with each chunk, so
	// that a stream may run for any time.
	WriteTimeout time.Duration
	// BodyTimeout limits how long a client may take to send its body; 0: 60 s.
	BodyTimeout time.Duration
	// RetryAfter is the Retry-After of responses that report a full queue or an
	// unavailable model; 0: 1 s.
	RetryAfter time.Duration

	// Cluster reports the state of the ranks to the cluster page; nil: the page shows the
	// engine alone.
	Cluster web.Source

	// History has what the cluster page shows of the last hour; nil: nothing.
	History *web.History

	// Budgets are further rows of the table of budgets.
	Budgets []Budget
	// Collectors are exposed by /metrics in addition to this package's own metrics. Two
	// collectors must not describe the same metric.
	Collectors []prometheus.Collector

	// Traces receives each request after its answer; nil: requests are not traced.
	Traces Tracer

	Log   *slog.Logger  // nil: slog.Default()
	Audit *slog.Logger  // a line for each request that may need a key; nil: none
	Clock Clock         // nil: the system's
	NewID func() string // nil: 24 random hex digits
}

// Error is an error response.
type Error = dialect.Error

// Clock tells the time; tests replace it.
type Clock interface {
	Now() time.Time
	// Ticker sends on the channel every d until stop is called; every changes d.
	Ticker(d time.Duration) (ticks <-chan time.Time, every func(d time.Duration), stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Ticker(d time.Duration) (<-chan time.Time, func(time.Duration), func()) {
	t := time.NewTicker(d)
	return t.C, t.Reset, t.Stop
}

// server holds the state shared by all handlers.
type server struct {
	Config
	bodies  budget
	texts   places
	renders places // including those that wait
	// rendering holds one value for each Markdown text that is being rendered.
	rendering chan struct{}
	metrics   *metrics

	service *dialect.Service
	runner  *run.Runner
}

// New returns the handler for all endpoints. It panics if a required field of the
// configuration is missing or two Collectors describe the same metric, since both are
// bugs of the caller.
func New(c Config) http.Handler { return newServer(c).handler() }

func newServer(c Config) *server {
	if err := c.setDefaults(); err != nil {
		panic(err)
	}
	s := &server{Config: c}
	s.bodies.limit = c.BodyBudget
	s.texts.limit = c.MaxTexts
	s.renders.limit, s.rendering = maxRenders+waitingRenders, make(chan struct{}, maxRenders)
	s.service = &dialect.Service{
		Model: c.Model, Tokenizer: c.Tokenizer, MaxTokenBytes: dialect.MaxTokenBytes(c.Tokenizer),
		StrictNames: c.StrictModelNames,
		MaxChoices:  c.MaxChoices, MaxPrompts: c.MaxPrompts, MaxMessages: c.MaxMessages, Now: c.Clock.Now, NewID: c.NewID,
		Replays: c.Replays, Grammars: dialect.NewGrammars(c.Tokenizer, c.MaxGrammars),
	}
	if c.Traces != nil {
		s.service.Grammars.Made, s.service.Grammars.Now = s.madeGrammar, c.Clock.Now
	}
	c.Collectors = append(slices.Clone(c.Collectors), newBudgetMetrics(s.budgets()))
	if ring := c.Keys; ring != nil {
		if file, _ := ring.FromFile(); file {
			c.Collectors = append(c.Collectors, reloaded("keys", func() bool { _, failed := ring.FromFile(); return failed }))
		}
	}
	s.metrics = newMetrics(c.Engine, &s.bodies, &s.texts, c.Collectors)
	s.runner = &run.Runner{Engine: c.Engine, Vocabulary: c.Tokenizer, Observer: s.metrics, Replays: s.service.Replays, Now: c.Clock.Now}
	return s
}

func (s *server) handler() http.Handler {
	gin.SetMode(gin.ReleaseMode) // otherwise gin prints to stdout
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.RedirectTrailingSlash = false
	r.Use(s.linger, s.observe, s.recover, s.deadlines, s.checkHost, s.cors, s.authorize)
	r.NoRoute(s.unknown)
	r.NoMethod(func(c *gin.Context) {
		s.fail(c, &Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s does not support the method %s; allowed: %s.", c.Request.URL.Path, c.Request.Method, c.Writer.Header().Get("Allow"))})
	})
	r.POST("/v1/chat/completions", s.generate(openai.Chat))
	r.POST("/v1/completions", s.generate(openai.Completion))
	r.POST("/v1/responses", s.generate(responses.Create))
	r.POST("/v1/messages", s.generate(anthropic.Messages))
	r.POST("/v1/messages/count_tokens", s.count(anthropic.CountTokens))
	r.GET("/v1/models", s.listModels)
	r.GET("/v1/models/*id", s.getModel)
	r.POST("/tokenize", s.withBody(s.tokenize))
	r.POST("/detokenize", s.withBody(s.detokenize))
	r.GET("/healthz", s.healthz)
	r.GET("/readyz", s.readyz)
	r.GET("/metrics", gin.WrapH(s.metrics.handler()))
	s.pageRoutes(r)
	s.ollamaRoutes(r)
	s.plainRoutes(r)
	return tidied(r)
}

// setDefaults checks the required fields and fills in the defaults.
func (c *Config) setDefaults() error {
	switch {
	case c.Engine == nil:
		return errors.New("api.Config.Engine is not set")
	case c.Tokenizer == nil:
		return errors.New("api.Config.Tokenizer is not set")
	case c.Model.ID == "":
		return errors.New("api.Config.Model.ID is not set")
	}
	setDefault(&c.MaxBody, 32<<20)
	setDefault(&c.BodyBudget, 64<<20)
	c.BodyBudget = max(c.BodyBudget, c.MaxBody)
	if c.Replays == nil {
		c.Replays = run.NewReplays(run.DefaultReplays)
	}
	setDefault(&c.MaxGrammars, dialect.DefaultGrammars)
	setDefault(&c.MaxTexts, 72)
	setDefault(&c.MaxChoices, 8)
	setDefault(&c.MaxPrompts, 64)
	setDefault(&c.MaxMessages, 8192)
	setDefault(&c.KeepAlive, 2*time.Second)
	setDefault(&c.WriteTimeout, 30*time.Second)
	setDefault(&c.BodyTimeout, 60*time.Second)
	setDefault(&c.RetryAfter, time.Second)
	if c.Keys == nil && len(c.APIKeys) > 0 {
		ring, err := keys.Open(keys.Options{Given: c.APIKeys})
		if err != nil {
			return err
		}
		c.Keys = ring
	}
	setDefault(&c.Model.Format, chat.Formats[0])
	setDefault(&c.Model.OwnedBy, "ringmaster")
	setDefault(&c.Model.Fingerprint, "fp_ringmaster")
	setDefault(&c.Log, slog.Default())
	setDefault[Clock](&c.Clock, systemClock{})
	if c.NewID == nil {
		c.NewID = func() string {
			var b [12]byte
			rand.Read(b[:]) // never fails
			return hex.EncodeToString(b[:])
		}
	}
	return nil
}

// setDefault replaces a zero value by its default.
func setDefault[T comparable](v *T, def T) {
	*v = cmp.Or(*v, def)
}
