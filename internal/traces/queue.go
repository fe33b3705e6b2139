package traces

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// maxWaiting is the most spans that wait or are being sent. A request has about six.
const maxWaiting = 4096

// queue counts what the SDK's queue drops. It has as many places as that one, so that the
// SDK's queue, which drops silently, is never full. It is also the SDK's exporter.
type queue struct {
	sdk.SpanProcessor // the SDK's queue
	exporter          sdk.SpanExporter
	log               *slog.Logger

	waiting atomic.Int64 // spans that wait or are being sent
	closed  atomic.Bool

	sent                        prometheus.Counter
	full, undelivered, rejected prometheus.Counter
	dropped                     *prometheus.CounterVec

	mu      sync.Mutex
	failing bool      // the last batch was not delivered
	told    bool      // the log says so
	said    time.Time // time of the last line
}

func newQueue(exporter sdk.SpanExporter, log *slog.Logger) *queue {
	q := &queue{exporter: exporter, log: log,
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringmaster_trace_spans_sent_total", Help: "Spans of traces that the collector has taken."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringmaster_trace_spans_dropped_total",
			Help: "Spans of traces that were dropped: full: too many waited; undelivered: the collector could not be reached or answered with an error; rejected: it took the others of their batch."}, []string{"reason"}),
	}
	q.full, q.undelivered, q.rejected = q.dropped.WithLabelValues("full"), q.dropped.WithLabelValues("undelivered"), q.dropped.WithLabelValues("rejected")
	q.SpanProcessor = sdk.NewBatchSpanProcessor(batches{q}, sdk.WithMaxQueueSize(maxWaiting))
	return q
}

func (q *queue) collectors() []prometheus.Collector { return []prometheus.Collector{q.sent, q.dropped} }

// OnEnd takes a span that has ended; it never waits.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.closed.Load() {
		q.undelivered.Inc()
		return
	}
	if q.waiting.Add(1) > maxWaiting {
		q.waiting.Add(-1)
		q.full.Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// Shutdown sends the waiting spans until ctx ends.
func (q *queue) Shutdown(ctx context.Context) error {
	q.closed.Store(true)
	return q.SpanProcessor.Shutdown(ctx)
}

// abandon gives up what is still being sent.
func (q *queue) abandon() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = q.exporter.Shutdown(ctx) // ends the current request
	if n := q.waiting.Load(); n > 0 {
		q.log.Warn("the collector did not accept the last spans in time", "spans", n)
	}
}

// batches is the exporter of a queue.
type batches struct{ *queue }

// ExportSpans sends a batch. It logs an error and returns nil.
func (b batches) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := b.exporter.ExportSpans(ctx, spans)
	b.waiting.Add(-int64(len(spans)))
	refused, partly := rejected(err, len(spans))
	switch {
	case err == nil:
		b.sent.Add(float64(len(spans)))
	case partly:
		b.rejected.Add(float64(refused))
		b.sent.Add(float64(len(spans) - refused))
	default:
		b.undelivered.Add(float64(len(spans)))
	}
	b.note(err)
	return nil
}

// Shutdown ends the exporter.
func (b batches) Shutdown(ctx context.Context) error { return b.exporter.Shutdown(ctx) }

// sayAgain is the least time between two lines about failing batches.
const sayAgain = 10 * time.Minute

// note logs once that batches fail, and that they are delivered again.
func (q *queue) note(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, now := q.failing, time.Now()
	q.failing = err != nil
	switch {
	case before == q.failing:
	case q.failing:
		if q.told = now.Sub(q.said) >= sayAgain; !q.told {
			return
		}
		q.said = now
		q.log.Warn("traces are not delivered; spans are dropped and counted in ringmaster_trace_spans_dropped_total", "error", excerpt(err.Error()))
	case q.told:
		q.log.Info("traces are delivered again")
	}
}

// partialSuccess matches how the exporter says that the collector accepted only a part of
// a batch; the type of this error is internal.
var partialSuccess = regexp.MustCompile(`OTLP partial success: (?s:.*) \((-?\d+) spans rejected\)$`)

// rejected returns how many spans of a batch the collector refused while it accepted the
// others; partly is false if err is another failure.
func rejected(err error, spans int) (n int, partly bool) {
	if err == nil {
		return 0, false
	}
	m := partialSuccess.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	n, bad := strconv.Atoi(m[1])
	if bad != nil {
		n = spans // a number larger than any batch
	}
	return min(max(n, 0), spans), true
}
