package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStarting(t *testing.T) {
	h := Starting(func() string { return "waiting for rank 1" }, nil, nil, nil)
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/healthz", 200, `{"status":"ok"}`},
		{"GET", "/readyz", 503, `{"status":"not ready","reason":"waiting for rank 1"}`},
		{"POST", "/v1/chat/completions", 503, `"code":"starting"`},
		{"GET", "/metrics", 503, "waiting for rank 1"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader("{}")))
		require.Equal(t, c.status, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want)
		if c.status == http.StatusServiceUnavailable && c.path != "/readyz" {
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
	}
}

// TestStartingTellsNoStranger checks that only a request with a key gets the reason,
// because it names hosts, and that Host is checked before the model is loaded as well as
// after.
func TestStartingTellsNoStranger(t *testing.T) {
	h := Starting(func() string { return "waiting for rank 1 at 10.0.0.2" }, nil, ringOf(t, "k"), LoopbackHosts("box"))
	for _, path := range []string{"/readyz", "/v1/models"} {
		w := call(h, "GET", path, "", "Host", "box")
		require.Equal(t, 503, w.Code, path)
		require.NotContains(t, w.Body.String(), "10.0.0.2", path)
		w = call(h, "GET", path, "", "Host", "box", "Authorization", "Bearer k")
		require.Equal(t, 503, w.Code, path)
		require.Contains(t, w.Body.String(), "10.0.0.2", path)
		require.Equal(t, 403, call(h, "GET", path, "", "Host", "evil.example").Code, path)
	}
}
