// Package traces sends the traces of requests and of changes of epochs to a collector of
// OpenTelemetry, as OTLP over HTTP. Open makes the Sender, and api.Config.Traces takes
// it. A trace has times, counts, the server's own names and ids, never a text of a client
// or of the model.
//
// All spans of a request are made after its answer, from times that were recorded on the
// way, so that no request waits for them; a goroutine of the SDK sends them. What the
// collector does not accept in time is dropped and counted.
package traces

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Sender makes spans and sends them.
type Sender struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	queue    *queue
	patience time.Duration // of Close

	mu     sync.Mutex
	epochs []epoch // the last maxEpochs that replaced others, oldest first
}

// Open prepares sending; it returns nil if the environment names no collector. It does
// not connect. Its error says which variable is wrong.
func Open(ctx context.Context, o Options) (*Sender, error) {
	target, err := targetOf(os.Getenv)
	if err != nil || target == "" {
		return nil, err
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	// Messages of the SDK itself, such as about a variable that it cannot read.
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("the exporter of traces failed", "error", excerpt(err.Error()))
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	what, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "ringmaster"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv()) // last, so that what it says about the service takes precedence
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	q := newQueue(exporter, o.Log)
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(q), sdk.WithResource(what))
	o.Log.Info("traces are sent", "url", target)
	return &Sender{tracer: p.Tracer("ringmaster"), provider: p, queue: q, patience: closeTimeout}, nil
}

// Collectors are the metrics of what is sent.
func (s *Sender) Collectors() []prometheus.Collector { return s.queue.collectors() }

// closeTimeout is how long the end of the program waits for the collector.
const closeTimeout = 2 * time.Second

// Close sends what waits, for closeTimeout at most. A nil Sender has nothing to close.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the queue counts and logs what could not be sent
	s.queue.abandon()
}
