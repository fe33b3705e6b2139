// Package api serves an engine over HTTP in the dialect of OpenAI: chat
// completions, text completions, models, and beside them tokenize, detokenize,
// health, metrics and a small chat page. It knows requests and token ids and
// nothing of tensors.
//
// The face of the package: New makes the http.Handler, NewServer wraps it in a
// server with the right timeouts and a graceful end. What a request may say
// stands in generation.go (fields that both completions share), chat.go and
// completions.go; what is refused stands in unsupported.go.
package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/engine"
	"ringmaster/model/prompt"
)

// Stream is one answer being made.
type Stream interface {
	// Next waits for the next piece; io.EOF comes after the piece that has
	// a finish reason.
	Next(ctx context.Context) (engine.Event, error)
	// Close ends the work on the answer. It may be called at any time, also
	// after the end, and more than once.
	Close()
}

// Engine is what the handlers need of an engine. FromEngine makes one of an
// *engine.Engine.
type Engine interface {
	// Submit queues a request. Its errors are those of package engine.
	Submit(ctx context.Context, r engine.Request) (Stream, error)
	// Ready is nil when a token could be produced now, else the reason.
	Ready() error
	// Stats is what the engine does at the moment, for /metrics.
	Stats() engine.Stats
}

// FromEngine makes an Engine of the engine.
func FromEngine(e *engine.Engine) Engine { return realEngine{e} }

// realEngine gives Submit the type of the interface.
type realEngine struct{ *engine.Engine }

func (e realEngine) Submit(ctx context.Context, r engine.Request) (Stream, error) {
	s, err := e.Engine.Submit(ctx, r)
	if err != nil {
		return nil, err // a nil *engine.Stream would not be a nil Stream
	}
	return s, nil
}

// Tokenizer is what the handlers need of a vocabulary.
type Tokenizer interface {
	// Encode cuts a text into ids. With special, the texts of control tokens
	// become those tokens; without, they are cut like any other text.
	Encode(text string, special bool) []int32
	// Decode is the text of ids; incomplete UTF-8 becomes U+FFFD.
	Decode(ids []int32) string
	// Bytes is what a token adds to a text, nothing for a control token.
	Bytes(id int32) []byte
	// Text is the name of a token, also of a control token.
	Text(id int32) string
	// ID finds a token by its name.
	ID(name string) (int32, bool)
	// BOS is the token that begins a prompt, AddBOS whether a prompt that is
	// plain text wants it.
	BOS() (int32, bool)
	AddBOS() bool
	// Size is the number of ids.
	Size() int
	// IsEnd reports whether the token ends an answer.
	IsEnd(id int32) bool
}

// Config is all that a handler needs. Engine, Tokenizer and Model.ID must be
// set; the zero value of every other field is a sensible default.
type Config struct {
	Engine    Engine
	Tokenizer Tokenizer
	Model     Model

	// APIKeys are the keys of which a request must carry one as
	// "Authorization: Bearer KEY". Empty: no key is asked for. /, /healthz
	// and /readyz never ask.
	APIKeys []string
	// CORSOrigins are the origins whose pages may call; "*" is any. Empty:
	// no CORS header is ever sent.
	CORSOrigins []string
	// Hosts are the names that a request's Host header may have (without
	// port). nil: any. A server on a loopback address should set it to
	// LoopbackHosts(): a web page that rebinds its own name to 127.0.0.1 is
	// then turned away.
	Hosts []string

	MaxBody    int64 // bytes of a request body; 0: 32 MiB
	MaxChoices int   // most n of a request; 0: 8
	MaxPrompts int   // most prompts of a completion request; 0: 64

	// KeepAlive is the silence after which a stream sends a comment, so that
	// nobody takes a long prefill for a dead server; 0: 10 s.
	KeepAlive time.Duration
	// WriteTimeout is how long one write to a client may take; 0: 30 s. It
	// is set anew for each chunk, so streams may be of any length.
	WriteTimeout time.Duration
	// BodyTimeout is how long a client may take to send its body; 0: 60 s.
	BodyTimeout time.Duration
	// RetryAfter is what a client is told when the queue is full or the model
	// is not available; 0: 1 s.
	RetryAfter time.Duration

	// Collectors are shown by /metrics beside what this package counts. None
	// may describe a metric of another.
	Collectors []prometheus.Collector

	Log   *slog.Logger  // nil: slog.Default()
	Clock Clock         // nil: the system's
	NewID func() string // nil: 24 random hex digits
}

// Model is how the served model is called.
type Model struct {
	ID            string
	Aliases       []string  // further names that requests may use
	Created       time.Time // shown by /v1/models
	ContextLength int       // tokens; shown by /v1/models when not 0
	OwnedBy       string    // "": "ringmaster"
	// Fingerprint names weights and settings; equal fingerprint, equal seed
	// and equal request give equal text. "": "fp_ringmaster".
	Fingerprint string
	Version     prompt.Version // of the texts that ask for effort
}

// Clock is the time; tests bring their own.
type Clock interface {
	Now() time.Time
	// Ticker sends on the channel every d until stop is called.
	Ticker(d time.Duration) (ticks <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Ticker(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(d)
	return t.C, t.Stop
}

// server is the state shared by all handlers.
type server struct {
	Config
	keys    [][32]byte
	metrics *metrics
}

// New makes the handler of everything this package serves. It panics when a
// required field of the configuration is missing or a metric of Collectors is
// there twice, which is a bug of the caller.
func New(c Config) http.Handler {
	if err := c.complete(); err != nil {
		panic(err)
	}
	s := &server{Config: c, keys: hashKeys(c.APIKeys)}
	s.metrics = newMetrics(c.Engine, c.Collectors)

	gin.SetMode(gin.ReleaseMode) // else gin prints to stdout
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.RedirectTrailingSlash = false
	r.Use(s.observe, s.recover, s.deadlines, s.checkHost, s.cors, s.authorize)
	r.NoRoute(func(c *gin.Context) {
		s.fail(c, &Error{Status: http.StatusNotFound, Code: "unknown_url",
			Message: fmt.Sprintf("There is nothing at %s %s.", c.Request.Method, c.Request.URL.Path)})
	})
	r.NoMethod(func(c *gin.Context) {
		s.fail(c, &Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s does not take %s; allowed: %s.", c.Request.URL.Path, c.Request.Method, c.Writer.Header().Get("Allow"))})
	})
	r.POST("/v1/chat/completions", s.chatCompletions)
	r.POST("/v1/completions", s.completions)
	r.GET("/v1/models", s.listModels)
	r.GET("/v1/models/*id", s.getModel)
	r.POST("/tokenize", s.tokenize)
	r.POST("/detokenize", s.detokenize)
	r.GET("/healthz", s.healthz)
	r.GET("/readyz", s.readyz)
	r.GET("/metrics", gin.WrapH(s.metrics.handler()))
	r.GET("/", s.page)
	return r
}

// complete checks the configuration and fills in the defaults.
func (c *Config) complete() error {
	switch {
	case c.Engine == nil:
		return errors.New("api: Config.Engine is not set")
	case c.Tokenizer == nil:
		return errors.New("api: Config.Tokenizer is not set")
	case c.Model.ID == "":
		return errors.New("api: Config.Model.ID is not set")
	}
	orInt(&c.MaxBody, 32<<20)
	orInt(&c.MaxChoices, 8)
	orInt(&c.MaxPrompts, 64)
	orInt(&c.KeepAlive, 10*time.Second)
	orInt(&c.WriteTimeout, 30*time.Second)
	orInt(&c.BodyTimeout, 60*time.Second)
	orInt(&c.RetryAfter, time.Second)
	if c.Model.OwnedBy == "" {
		c.Model.OwnedBy = "ringmaster"
	}
	if c.Model.Fingerprint == "" {
		c.Model.Fingerprint = "fp_ringmaster"
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.NewID == nil {
		c.NewID = func() string {
			var b [12]byte
			rand.Read(b[:]) // never fails
			return hex.EncodeToString(b[:])
		}
	}
	return nil
}

func orInt[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
