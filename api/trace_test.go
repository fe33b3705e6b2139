package api

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// tracer keeps the traces of a test.
type tracer struct{ list []*Trace }

func (r *tracer) Request(t *Trace) string {
	r.list = append(r.list, t)
	return "trace-" + t.ID
}

// TestTraces: the trace of an answered request, of its answers and their times, in each
// dialect.
func TestTraces(t *testing.T) {
	for _, x := range []struct{ path, body, dialect string }{
		{"/v1/chat/completions", `{` + user + `,"max_tokens":3,"n":2}`, "openai"},
		{"/v1/completions", `{"prompt":"abc","max_tokens":3,"stream":true,"n":2}`, "openai"},
		{"/v1/messages", `{` + user + `,"max_tokens":3}`, "anthropic"},
		{"/v1/responses", `{"input":"abc","max_output_tokens":16}`, "responses"},
		{"/api/chat", `{"model":"tiny",` + user + `,"options":{"num_predict":3}}`, "ollama"},
	} {
		c := realConfig(t, "I think so.")
		var got tracer
		c.Traces, c.StrictModelNames, c.Clock = &got, false, systemClock{}
		w := call(New(c), "POST", x.path, x.body, "X-Request-Id", "mine", "traceparent", "00-1")
		require.Equal(t, 200, w.Code, w.Body)
		require.Len(t, got.list, 1, x.path)
		tr := got.list[0]
		require.Equal(t, x.path, tr.Route)
		require.Equal(t, x.dialect, tr.Dialect)
		require.Equal(t, "tiny", tr.Model)
		require.Equal(t, []string{"00-1"}, tr.Header["Traceparent"])
		require.Equal(t, "mine", tr.ClientID)
		require.Equal(t, w.Header().Get("X-Request-Id"), tr.ID)
		require.Equal(t, 200, tr.Status)
		require.Empty(t, tr.Code)
		require.Zero(t, tr.Grammar)
		require.Equal(t, strings.Contains(x.body, "stream") || x.dialect == "ollama", tr.Streamed)
		require.Len(t, tr.Answers, 1+strings.Count(x.body, `"n":2`))
		for _, a := range tr.Answers {
			require.NotEqual(t, engine.FinishNone, a.Finish)
			require.Positive(t, a.Usage.Completion)
			require.Positive(t, a.Times.PrefillSteps)
			require.Equal(t, a.Usage.Completion-1, a.Times.DecodeSteps, "the last step of the prompt gives the first token")
			require.False(t, tr.Began.After(tr.Parsing.Began))
			require.False(t, tr.Parsing.Ended.After(a.Times.Submitted))
			require.False(t, a.Times.Submitted.After(a.Times.Started))
			require.False(t, a.Times.Started.After(a.Times.Decoding))
			require.False(t, a.Times.Decoding.After(a.Times.Ended))
			require.False(t, a.Times.Ended.After(tr.Ended))
		}
	}
}

// TestTracesOfGrammars: making the grammar of an answer belongs to the first request that
// asks for it, also if it fails.
func TestTracesOfGrammars(t *testing.T) {
	c := realConfig(t, `{}`)
	var got tracer
	c.Traces, c.Clock = &got, systemClock{}
	h := New(c)
	for range 2 {
		call(h, "POST", "/v1/completions", `{"prompt":"abc","max_tokens":3,"guided_json":{"type":"object"}}`)
	}
	call(h, "POST", "/v1/chat/completions", `{`+user+`,"max_tokens":3,"response_format":{"type":"json_object"}}`)
	require.Len(t, got.list, 3)
	for i, made := range []bool{true, false, true} {
		tr := got.list[i]
		require.Equal(t, made, !tr.Grammar.Began.IsZero(), i)
		require.False(t, tr.Refused)
		if made {
			require.False(t, tr.Grammar.Began.Before(tr.Parsing.Began))
			require.False(t, tr.Grammar.Ended.After(tr.Parsing.Ended))
		}
	}
}

// TestTracesOfFailures: the code of the error that ended a request, and which requests
// make no trace.
func TestTracesOfFailures(t *testing.T) {
	lost := &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		return append(answerActs(len(r.Prompt), "abc")[:1], act{err: engine.ErrUnavailable}), nil
	}}
	for _, x := range []struct {
		name         string
		e            *fakeEngine
		method, path string
		body, key    string
		status       int // 0: no trace
		code         string
		answers      int
	}{
		{"bad JSON", answering("a"), "POST", "/v1/completions", `{`, "k", 400, "invalid_json", 0},
		{"bad field", answering("a"), "POST", "/v1/completions", `{"prompt":"a","n":99}`, "k", 400, "out_of_range", 0},
		{"busy", rejecting(engine.ErrBusy), "POST", "/v1/completions", `{"prompt":"a"}`, "k", 429, "server_busy", 0},
		{"lost", lost, "POST", "/v1/completions", `{"prompt":"a"}`, "k", 503, "group_unavailable", 1},
		{"lost in a stream", lost, "POST", "/v1/completions", `{"prompt":"a","stream":true}`, "k", 503, "group_unavailable", 1},
		{"tokenize", answering("a"), "POST", "/tokenize", `{"content":"a"}`, "k", 200, "", 0},
		{"no key", answering("a"), "POST", "/v1/completions", `{"prompt":"a"}`, "", 0, "", 0},
		{"wrong key", answering("a"), "POST", "/v1/completions", `{"prompt":"a"}`, "x", 0, "", 0},
		{"no route", answering("a"), "POST", "/v1/nothing", `{}`, "k", 0, "", 0},
		{"health", answering("a"), "GET", "/healthz", "", "", 0, "", 0},
		{"metrics", answering("a"), "GET", "/metrics", "", "k", 0, "", 0},
	} {
		c := testConfig(x.e)
		var got tracer
		c.Traces, c.APIKeys = &got, []string{"k"}
		headers := []string{"Authorization", "Bearer " + x.key}
		if x.key == "" {
			headers = nil
		}
		call(New(c), x.method, x.path, x.body, headers...)
		if x.status == 0 {
			require.Empty(t, got.list, x.name)
			continue
		}
		require.Len(t, got.list, 1, x.name)
		require.Equal(t, x.status, got.list[0].Status, x.name)
		require.Equal(t, x.code, got.list[0].Code, x.name)
		require.Len(t, got.list[0].Answers, x.answers, x.name)
	}
}

// TestLogNamesTrace: the request's line in the log has the id of its trace.
func TestLogNamesTrace(t *testing.T) {
	var log strings.Builder
	c := testConfig(answering("a"))
	c.Traces, c.Log = &tracer{}, slog.New(slog.NewTextHandler(&log, nil))
	require.Equal(t, http.StatusOK, call(New(c), "POST", "/v1/completions", `{"prompt":"a"}`).Code)
	require.Contains(t, log.String(), "trace=trace-req_0123456789abcdef")
}
