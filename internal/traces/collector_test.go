package traces

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// testCollector is a collector of OTLP over HTTP that keeps what it receives.
type testCollector struct {
	*httptest.Server
	// answer, if set, runs after a batch has been read.
	answer http.HandlerFunc

	mu       sync.Mutex
	requests []*http.Request
	raw      []byte // of all bodies
	spans    []*otlp.Span
	resource map[string]*common.AnyValue
}

func newCollector(t *testing.T, answer http.HandlerFunc) *testCollector {
	c := &testCollector{answer: answer}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = z
		}
		data, err := io.ReadAll(body)
		var batch collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &batch)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		c.requests = append(c.requests, r)
		c.raw = append(c.raw, data...)
		for _, of := range batch.ResourceSpans {
			c.resource = attributesOf(of.Resource.Attributes)
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		c.mu.Unlock()
		if c.answer != nil {
			c.answer(w, r)
		}
	}))
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

// named returns the spans with a name, in the order in which they came.
func (c *testCollector) named(name string) (out []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// one returns the only span with a name.
func (c *testCollector) one(t *testing.T, name string) *otlp.Span {
	t.Helper()
	list := c.named(name)
	require.Len(t, list, 1, name)
	return list[0]
}

func attributesOf(list []*common.KeyValue) map[string]*common.AnyValue {
	out := map[string]*common.AnyValue{}
	for _, a := range list {
		out[a.Key] = a.Value
	}
	return out
}

// values returns attributes as Go values.
func values(t *testing.T, s *otlp.Span) map[string]any {
	out := map[string]any{}
	for name, v := range attributesOf(s.Attributes) {
		switch v := v.Value.(type) {
		case *common.AnyValue_StringValue:
			out[name] = v.StringValue
		case *common.AnyValue_IntValue:
			out[name] = int(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[name] = v.BoolValue
		case *common.AnyValue_ArrayValue:
			var list []string
			for _, x := range v.ArrayValue.Values {
				list = append(list, x.GetStringValue())
			}
			out[name] = strings.Join(list, " ")
		default:
			require.Fail(t, "an attribute of another type", "%s: %T", name, v)
		}
	}
	return out
}
