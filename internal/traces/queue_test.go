package traces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestBadCollectors: a collector that is away, hangs, refuses or lies delays neither
// requests nor the end of the program; each span is sent or counted as dropped, and the
// log has one line about it.
func TestBadCollectors(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // ms: many batches
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	away := "http://" + closed.Addr().String()
	require.NoError(t, closed.Close())
	partial := func(rejected int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			body, _ := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: rejected, ErrorMessage: "too (1 spans rejected)\nlate"}})
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(body)
		}
	}
	for _, x := range []struct {
		name   string
		answer http.HandlerFunc // nil: away
		lost   func(sent, full, undelivered, rejected float64) bool
	}{
		{"away", nil, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(sent, full, undelivered, _ float64) bool {
				return sent == 0 && full > 0 && undelivered == maxWaiting
			}},
		{"asks to come back in a thousand years", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "31536000000")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"refuses, at length", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, strings.Repeat("no ", 10_000))
		}, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"never ends", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"answers with something else", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = io.WriteString(w, "hello")
		}, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"redirects to itself", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, func(sent, _, undelivered, _ float64) bool { return sent == 0 && undelivered > 0 }},
		{"takes all but one of a batch", partial(1), func(sent, _, _, rejected float64) bool { return sent > 0 && rejected > 0 }},
		{"refuses more than there were", partial(1 << 62), func(sent, _, _, rejected float64) bool { return sent == 0 && rejected > 0 }},
		{"refuses less than nothing", partial(-7), func(sent, _, _, rejected float64) bool { return sent > 0 && rejected == 0 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			url := away
			if x.answer != nil {
				url = newCollector(t, x.answer).URL
			}
			s, log := open(t, url)
			s.patience = 200 * time.Millisecond
			const spans = 8 // of a request
			requests := 60
			if x.name == "hangs" {
				requests = maxWaiting/spans + 100
			}
			for range requests {
				s.Request(answered())
			}
			done := make(chan struct{})
			go func() { defer close(done); s.Close() }()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				require.Fail(t, "Close waits for the collector")
			}
			var sent, full, undelivered, rejected float64
			counted := func() bool {
				q := s.queue
				sent, full = testutil.ToFloat64(q.sent), testutil.ToFloat64(q.full)
				undelivered, rejected = testutil.ToFloat64(q.undelivered), testutil.ToFloat64(q.rejected)
				return sent+full+undelivered+rejected == float64(spans*requests)
			}
			require.Eventually(t, counted, 20*time.Second, 5*time.Millisecond, "each span is counted once")
			require.True(t, x.lost(sent, full, undelivered, rejected), "sent %v, full %v, undelivered %v, rejected %v", sent, full, undelivered, rejected)
			require.Eventually(t, func() bool { return s.queue.waiting.Load() == 0 }, 20*time.Second, 5*time.Millisecond)
			s.queue.mu.Lock()
			defer s.queue.mu.Unlock()
			require.Equal(t, 1, strings.Count(log.String(), "are not delivered"), log.String())
			require.Less(t, log.Len(), 2000)
			require.NotContains(t, log.String(), "\nlate")
		})
	}
}

// TestOutage: the log reports an outage and its end, but not each outage that follows
// soon.
func TestOutage(t *testing.T) {
	var log bytes.Buffer
	q := &queue{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		q.note(errors.New("refused"))
	}
	q.note(nil)
	q.note(nil)
	require.Equal(t, 1, strings.Count(log.String(), "not delivered"))
	require.Equal(t, 1, strings.Count(log.String(), "delivered again"))
	for range 3 {
		q.note(errors.New("refused"))
		q.note(nil)
	}
	require.Equal(t, 1, strings.Count(log.String(), "not delivered"))
	require.Equal(t, 1, strings.Count(log.String(), "delivered again"), "the end of an unlogged outage")
	q.said = q.said.Add(-sayAgain)
	q.note(errors.New("refused"))
	require.Equal(t, 2, strings.Count(log.String(), "not delivered"))
}

// TestRejected pins how the exporter's error for a partly refused batch is parsed.
func TestRejected(t *testing.T) {
	for _, x := range []struct {
		text   string
		n      int
		partly bool
	}{
		{"OTLP partial success: empty message (3 spans rejected)", 3, true},
		{"traces export: OTLP partial success: a\nb (2 spans rejected) (0 spans rejected)", 0, true},
		{"OTLP partial success: x (-3 spans rejected)", 0, true},
		{"OTLP partial success: x (99999999999999999999 spans rejected)", 9, true},
		{"connection refused", 0, false},
	} {
		n, partly := rejected(fmt.Errorf("%s", x.text), 9)
		require.Equal(t, x.n, n, x.text)
		require.Equal(t, x.partly, partly, x.text)
	}
	n, partly := rejected(nil, 9)
	require.Zero(t, n)
	require.False(t, partly)
}

// TestTargets: where traces go, by the variables, and what is refused.
func TestTargets(t *testing.T) {
	for _, x := range []struct {
		name  string
		env   map[string]string
		shown string
		err   string
	}{
		{name: "nothing"},
		{name: "variable", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}, shown: "http://h:1"},
		{name: "with a password", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:secret@h:1"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT has a user"},
		{name: "with a query", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1/?key=secret"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT has a user, a query or a fragment, which are not sent; give what the collector asks for in OTEL_EXPORTER_OTLP_HEADERS"},
		{name: "variable of traces", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"}, shown: "http://b/x"},
		{name: "switched off", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"}},
		{name: "no exporter", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "none"}},
		{name: "no scheme", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "h:4318"}, err: `OTEL_EXPORTER_OTLP_ENDPOINT is "h:4318"; expected the address of a collector, such as http://127.0.0.1:4318`},
		{name: "no host", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{name: "another scheme", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "unix:///x"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT is"},
		{name: "nonsense", env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1"}, err: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is"},
		{name: "gRPC", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; expected http/protobuf`},
	} {
		got, err := targetOf(func(name string) string { return x.env[name] })
		if x.err != "" {
			require.ErrorContains(t, err, x.err, x.name)
			require.NotContains(t, err.Error(), "secret")
			continue
		}
		require.NoError(t, err, x.name)
		require.Equal(t, x.shown, got, x.name)
	}
}

// TestNothingWanted: without an address no sender is made.
func TestNothingWanted(t *testing.T) {
	clearEnvironment(t)
	s, err := Open(t.Context(), Options{})
	require.NoError(t, err)
	require.Nil(t, s)
	s.Close()
}
