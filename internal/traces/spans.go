package traces

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"ringmaster/api"
	"ringmaster/api/run"
	"ringmaster/engine"
)

var _ api.Tracer = (*Sender)(nil)

// Request implements api.Tracer: it makes the spans of a request. Attributes have the
// names of OpenTelemetry's conventions if these have one.
func (s *Sender) Request(t *api.Trace) string {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(t.Header))
	ctx, root := s.tracer.Start(ctx, t.Method+" "+t.Route, trace.WithTimestamp(t.Began), trace.WithSpanKind(trace.SpanKindServer))
	if !root.IsRecording() {
		return ""
	}
	root.SetAttributes(attribute.String("http.request.method", t.Method), attribute.String("http.route", t.Route),
		attribute.Int("http.response.status_code", t.Status), attribute.String("ringmaster.request.id", t.ID))
	if t.ClientID != "" {
		root.SetAttributes(attribute.String("ringmaster.request.client_id", t.ClientID))
	}
	if t.Code != "" {
		root.SetAttributes(attribute.String("error.type", t.Code))
	}
	if t.Dialect != "" {
		s.generation(ctx, root, t)
	}
	if failed(t) {
		root.SetStatus(codes.Error, t.Code)
	}
	root.End(trace.WithTimestamp(t.Ended))
	return root.SpanContext().TraceID().String()
}

// failed reports whether the server is to blame for a request's end, as OpenTelemetry's
// conventions of HTTP define it for a server's spans.
func failed(t *api.Trace) bool { return t.Status >= 500 && t.Status != http.StatusNotImplemented }

// generation makes the spans below that of a request for an answer.
func (s *Sender) generation(ctx context.Context, root trace.Span, t *api.Trace) {
	var sum run.Usage
	var reasons []string
	calls := 0
	for i := range t.Answers {
		a := &t.Answers[i]
		sum.Prompt += a.Usage.Prompt
		sum.Cached += a.Usage.Cached
		sum.Completion += a.Usage.Completion
		sum.Reasoning += a.Usage.Reasoning
		calls += a.Calls
		reason := string(a.Finish)
		if a.Finish == engine.FinishNone {
			reason = "none"
		}
		reasons = append(reasons, reason)
	}
	root.SetAttributes(attribute.String("ringmaster.dialect", t.Dialect), attribute.String("gen_ai.request.model", t.Model), attribute.Bool("ringmaster.stream", t.Streamed))
	if len(t.Answers) > 0 {
		root.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", sum.Prompt), attribute.Int("ringmaster.cached_tokens", sum.Cached),
			attribute.Int("gen_ai.usage.output_tokens", sum.Completion), attribute.Int("ringmaster.reasoning_tokens", sum.Reasoning),
			attribute.Int("ringmaster.tool_calls", calls), attribute.StringSlice("gen_ai.response.finish_reasons", reasons))
	}
	if t.Parsing.Began.IsZero() {
		return // refused before
	}
	parsing, parse := s.tracer.Start(ctx, "parse", trace.WithTimestamp(t.Parsing.Began))
	if !t.Grammar.Began.IsZero() {
		g := s.part(parsing, "compile constraint", t.Grammar.Began)
		if t.Refused {
			g.SetStatus(codes.Error, t.Code)
		}
		g.End(trace.WithTimestamp(t.Grammar.Ended))
	}
	parse.End(trace.WithTimestamp(t.Parsing.Ended))
	for i := range t.Answers {
		s.answer(ctx, t, i)
	}
}

// answer makes the spans of one of the answers: queue, prefill and decode, as far as it
// came, and what interrupted them. If the answer failed, the last one has an error.
func (s *Sender) answer(ctx context.Context, t *api.Trace, index int) {
	a := &t.Answers[index]
	times := a.Times
	if times.Submitted.IsZero() || times.Ended.IsZero() {
		return
	}
	parts := []struct {
		name       string
		began, end time.Time
		counts     []attribute.KeyValue
	}{
		{"queue", times.Submitted, times.Started, nil},
		{"prefill", times.Started, times.Decoding, []attribute.KeyValue{attribute.Int("ringmaster.steps", times.PrefillSteps),
			attribute.Int("ringmaster.tokens", a.Usage.Prompt-a.Usage.Cached), attribute.Int("ringmaster.cached_tokens", a.Usage.Cached)}},
		{"decode", times.Decoding, times.Ended, []attribute.KeyValue{attribute.Int("ringmaster.steps", times.DecodeSteps),
			attribute.Int("ringmaster.tokens", a.Usage.Completion)}},
	}
	for _, p := range parts {
		unfinished := p.end.IsZero()
		if unfinished {
			p.end = times.Ended
		}
		if len(t.Answers) > 1 {
			p.counts = append(slices.Clone(p.counts), attribute.Int("ringmaster.answer", index))
		}
		span := s.part(ctx, p.name, p.began, p.counts...)
		if p.name != "queue" {
			s.interruptions(trace.ContextWithSpan(ctx, span), p.began, p.end)
		}
		last := unfinished || p.name == "decode"
		if last && a.Finish == engine.FinishNone && failed(t) {
			span.SetStatus(codes.Error, t.Code)
		}
		span.End(trace.WithTimestamp(p.end))
		if last {
			return
		}
	}
}

// part begins a span within that of ctx; the caller ends it.
func (s *Sender) part(ctx context.Context, name string, began time.Time, attributes ...attribute.KeyValue) trace.Span {
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	return span
}
