package traces

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"ringmaster/distributed/cluster"
)

// maxEpochs is how many epochs are remembered for the requests that they interrupted.
const maxEpochs = 64

// epoch is a time in which no step ran, because a new epoch replaced another.
type epoch struct {
	began, ended time.Time
	number       uint32
	span         trace.SpanContext
}

// Formed implements cluster.Config.Formed: it makes the trace of an epoch that replaced
// another. Its parts follow each other without gaps; if the epoch was tried several times
// they are sums.
func (s *Sender) Formed(f cluster.Formation) {
	attributes := []attribute.KeyValue{attribute.Int64("ringmaster.epoch", int64(f.Epoch)), attribute.Int("ringmaster.ranks", f.Ranks)}
	name := "planned epoch"
	if f.Lost >= 0 {
		name = "recovery"
		attributes = append(attributes, attribute.Int("ringmaster.lost_rank", f.Lost))
	}
	ctx, root := s.tracer.Start(context.Background(), name, trace.WithNewRoot(), trace.WithTimestamp(f.Began), trace.WithAttributes(attributes...))
	at := f.Began
	for i, took := range f.Parts {
		if took > 0 {
			span := s.part(ctx, cluster.Part(i).String(), at)
			at = at.Add(took)
			span.End(trace.WithTimestamp(at))
		}
	}
	root.End(trace.WithTimestamp(at))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.epochs) == maxEpochs {
		s.epochs = slices.Delete(s.epochs, 0, 1)
	}
	s.epochs = append(s.epochs, epoch{f.Began, at, f.Epoch, root.SpanContext()})
}

// interruptions makes spans within that of ctx for the epochs that formed during a part
// of a request, with links to their own traces.
func (s *Sender) interruptions(ctx context.Context, began, ended time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.epochs {
		if !e.began.Before(ended) || !began.Before(e.ended) {
			continue
		}
		latest := slices.MaxFunc([]time.Time{e.began, began}, time.Time.Compare)
		_, span := s.tracer.Start(ctx, "recovery", trace.WithTimestamp(latest), trace.WithLinks(trace.Link{SpanContext: e.span}),
			trace.WithAttributes(attribute.Int64("ringmaster.epoch", int64(e.number))))
		span.End(trace.WithTimestamp(slices.MinFunc([]time.Time{e.ended, ended}, time.Time.Compare)))
	}
}
