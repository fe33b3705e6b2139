package traces

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"ringmaster/api"
	"ringmaster/api/run"
	"ringmaster/distributed/cluster"
	"ringmaster/engine"
)

// clearEnvironment removes the variables of OpenTelemetry from a test's environment.
func clearEnvironment(t *testing.T) {
	for _, name := range []string{"EXPORTER_OTLP_ENDPOINT", "EXPORTER_OTLP_TRACES_ENDPOINT", "EXPORTER_OTLP_PROTOCOL", "EXPORTER_OTLP_TRACES_PROTOCOL",
		"SDK_DISABLED", "TRACES_EXPORTER", "TRACES_SAMPLER", "TRACES_SAMPLER_ARG", "SERVICE_NAME", "RESOURCE_ATTRIBUTES"} {
		t.Setenv("OTEL_"+name, "")
	}
}

// open returns a sender to a collector; it logs into the buffer.
func open(t *testing.T, collector string) (*Sender, *bytes.Buffer) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
	var log bytes.Buffer
	s, err := Open(t.Context(), Options{Version: "v9", Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NotNil(t, s)
	return s, &log
}

// at returns a time of the tests, in milliseconds.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// answered returns a request with two answers; the second was given up in its prefill.
func answered() *api.Trace {
	return &api.Trace{
		Header: http.Header{"Authorization": {"Bearer secret"}}, ID: "req_1", ClientID: "c-1", Method: "POST", Route: "/v1/chat/completions",
		Began: at(0), Ended: at(100), Status: 200, Dialect: "openai", Model: "tiny", Streamed: true,
		Parsing: api.Interval{Began: at(1), Ended: at(5)}, Grammar: api.Interval{Began: at(2), Ended: at(4)},
		Answers: []run.Outcome{
			{Usage: run.Usage{Usage: engine.Usage{Prompt: 20, Cached: 8, Completion: 7}, Reasoning: 3}, Finish: run.FinishCalls, Calls: 2,
				Times: engine.Times{Submitted: at(6), Started: at(10), Decoding: at(40), Ended: at(90), PrefillSteps: 2, DecodeSteps: 6}},
			{Usage: run.Usage{Usage: engine.Usage{Prompt: 20}},
				Times: engine.Times{Submitted: at(6), Started: at(12), Ended: at(80), PrefillSteps: 1}},
		},
	}
}

// requireSpan requires the times of a span and, unless it is nil, its parent.
func requireSpan(t *testing.T, span, parent *otlp.Span, began, ended int) {
	t.Helper()
	require.Equal(t, uint64(at(began).UnixNano()), span.StartTimeUnixNano, span.Name)
	require.Equal(t, uint64(at(ended).UnixNano()), span.EndTimeUnixNano, span.Name)
	if parent != nil {
		require.Equal(t, parent.SpanId, span.ParentSpanId, span.Name)
	}
}

// TestSpans: the spans of a request, their parents, their times and their attributes.
func TestSpans(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=abc")
	c := newCollector(t, nil)
	s, _ := open(t, c.URL)
	tr := answered()
	tr.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.Request(tr))
	s.Close()

	require.Equal(t, "/v1/traces", c.requests[0].URL.Path)
	require.Equal(t, "abc", c.requests[0].Header.Get("x-token"))
	require.Equal(t, "ringmaster", c.resource["service.name"].GetStringValue())
	require.Equal(t, "v9", c.resource["service.version"].GetStringValue())
	require.Equal(t, "lab", c.resource["deployment.environment.name"].GetStringValue())
	require.NotContains(t, string(c.raw), "secret")

	root := c.one(t, "POST /v1/chat/completions")
	require.Equal(t, otlp.Span_SPAN_KIND_SERVER, root.Kind)
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(root.ParentSpanId))
	require.Equal(t, map[string]any{"http.request.method": "POST", "http.route": "/v1/chat/completions", "http.response.status_code": 200,
		"ringmaster.request.id": "req_1", "ringmaster.request.client_id": "c-1", "ringmaster.dialect": "openai", "ringmaster.stream": true,
		"gen_ai.request.model": "tiny", "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 7, "ringmaster.cached_tokens": 8,
		"ringmaster.reasoning_tokens": 3, "ringmaster.tool_calls": 2, "gen_ai.response.finish_reasons": "tool_calls none"}, values(t, root))
	require.Equal(t, otlp.Status_STATUS_CODE_UNSET, root.Status.GetCode())

	parse := c.one(t, "parse")
	queue, prefill, decode := c.named("queue"), c.named("prefill"), c.named("decode")
	require.Len(t, queue, 2)
	require.Len(t, prefill, 2)
	require.Len(t, decode, 1)
	for _, x := range []struct {
		span, parent *otlp.Span
		began, ended int
		says         map[string]any
	}{
		{root, nil, 0, 100, nil},
		{parse, root, 1, 5, map[string]any{}},
		{c.one(t, "compile constraint"), parse, 2, 4, map[string]any{}},
		{queue[0], root, 6, 10, map[string]any{"ringmaster.answer": 0}},
		{queue[1], root, 6, 12, map[string]any{"ringmaster.answer": 1}},
		{prefill[0], root, 10, 40, map[string]any{"ringmaster.answer": 0, "ringmaster.steps": 2, "ringmaster.tokens": 12, "ringmaster.cached_tokens": 8}},
		{prefill[1], root, 12, 80, map[string]any{"ringmaster.answer": 1, "ringmaster.steps": 1, "ringmaster.tokens": 20, "ringmaster.cached_tokens": 0}},
		{decode[0], root, 40, 90, map[string]any{"ringmaster.answer": 0, "ringmaster.steps": 6, "ringmaster.tokens": 7}},
	} {
		require.Equal(t, root.TraceId, x.span.TraceId)
		requireSpan(t, x.span, x.parent, x.began, x.ended)
		if x.parent != nil {
			require.Equal(t, x.says, values(t, x.span), x.span.Name)
		}
	}
}

// TestStatus: which ends are errors, and on which spans.
func TestStatus(t *testing.T) {
	clearEnvironment(t)
	for _, x := range []struct {
		name   string
		change func(*api.Trace)
		errors map[string]string // span: description
	}{
		{"success", func(*api.Trace) {}, nil},
		{"a client's mistake", func(tr *api.Trace) { tr.Status, tr.Code, tr.Answers = 400, "invalid_value", nil }, nil},
		{"a form that cannot be enforced", func(tr *api.Trace) {
			tr.Status, tr.Code, tr.Answers, tr.Refused = 400, "unsupported_schema", nil, true
		}, map[string]string{"compile constraint": "unsupported_schema"}},
		{"the client has gone", func(tr *api.Trace) { tr.Status, tr.Code = 499, "client_closed_request" }, nil},
		{"not of this server", func(tr *api.Trace) { tr.Status, tr.Code, tr.Dialect = 501, "not_supported", "" }, nil},
		{"a rank was lost", func(tr *api.Trace) {
			tr.Status, tr.Code = 503, "group_unavailable"
			tr.Answers = tr.Answers[1:]
		}, map[string]string{"POST /v1/chat/completions": "group_unavailable", "prefill": "group_unavailable"}},
		{"lost in the queue", func(tr *api.Trace) {
			tr.Status, tr.Code = 503, "group_unavailable"
			tr.Answers = []run.Outcome{{Times: engine.Times{Submitted: at(6), Ended: at(9)}}}
		}, map[string]string{"POST /v1/chat/completions": "group_unavailable", "queue": "group_unavailable"}},
		{"lost while it decoded", func(tr *api.Trace) {
			tr.Status, tr.Code = 500, "non_finite_output"
			tr.Answers = tr.Answers[:1]
			tr.Answers[0].Finish = engine.FinishNone
		}, map[string]string{"POST /v1/chat/completions": "non_finite_output", "decode": "non_finite_output"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newCollector(t, nil)
			s, _ := open(t, c.URL)
			tr := answered()
			x.change(tr)
			s.Request(tr)
			s.Close()
			got := map[string]string{}
			for _, span := range c.spans {
				if span.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
					got[span.Name] = span.Status.Message
				}
			}
			if x.errors == nil {
				x.errors = map[string]string{}
			}
			require.Equal(t, x.errors, got)
			root := c.one(t, "POST /v1/chat/completions")
			if tr.Code != "" {
				require.Equal(t, tr.Code, values(t, root)["error.type"])
			}
		})
	}
}

// TestSampling: the share applies to traces that begin here; a trace that began elsewhere
// has its own decision.
func TestSampling(t *testing.T) {
	clearEnvironment(t)
	c := newCollector(t, nil)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
	s, _ := open(t, c.URL)
	require.Empty(t, s.Request(answered()))
	for _, header := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-x", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		tr := answered()
		tr.Header.Set("traceparent", header)
		require.Empty(t, s.Request(tr), header)
	}
	tr := answered()
	tr.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.NotEmpty(t, s.Request(tr))
	s.Close()
	c.one(t, "POST /v1/chat/completions")
}

// TestEpochs: an epoch that replaced another has its own trace, and requests that it
// interrupted show it at the right place.
func TestEpochs(t *testing.T) {
	clearEnvironment(t)
	c := newCollector(t, nil)
	s, _ := open(t, c.URL)
	lost := cluster.Formation{Epoch: 4, Ranks: 2, Lost: 1, Began: at(30)}
	lost.Parts[cluster.Noticing], lost.Parts[cluster.Mapping] = 15*time.Millisecond, 5*time.Millisecond
	s.Formed(lost)
	s.Formed(cluster.Formation{Epoch: 5, Ranks: 3, Lost: -1, Began: at(200)}) // after the request
	tr := answered()
	tr.Answers = tr.Answers[:1] // prefill until 40, decode until 90
	s.Request(tr)
	s.Close()

	var own *otlp.Span
	var within []*otlp.Span
	for _, span := range c.named("recovery") {
		if len(span.ParentSpanId) == 0 {
			own = span
		} else {
			within = append(within, span)
		}
	}
	require.NotNil(t, own)
	require.Equal(t, map[string]any{"ringmaster.epoch": 4, "ringmaster.ranks": 2, "ringmaster.lost_rank": 1}, values(t, own))
	requireSpan(t, c.one(t, "noticing"), own, 30, 45)
	requireSpan(t, c.one(t, "mapping"), own, 45, 50)
	require.NotContains(t, values(t, c.one(t, "planned epoch")), "ringmaster.lost_rank")

	require.Len(t, within, 2, "in prefill and in decode")
	requireSpan(t, within[0], c.one(t, "prefill"), 30, 40)
	requireSpan(t, within[1], c.one(t, "decode"), 40, 50)
	for _, span := range within {
		require.Equal(t, own.TraceId, span.Links[0].TraceId)
		require.Equal(t, own.SpanId, span.Links[0].SpanId)
	}
	for range 2 * maxEpochs {
		s.Formed(lost)
	}
	require.Len(t, s.epochs, maxEpochs)
}
